package backtest

// Sentences are the texts of notes by code.
var Sentences = sentences
