"""Work side by side. In: functions, jobs and questions. Out: their results, from threads or processes."""
