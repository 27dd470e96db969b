"""The language server. In: messages of an editor. Out: what ``compiler/services`` says, in the protocol's words."""
