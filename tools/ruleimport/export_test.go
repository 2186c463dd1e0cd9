package ruleimport

// Formats are the readers of each format.
var Formats = formats
