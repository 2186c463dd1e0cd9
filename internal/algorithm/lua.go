package algorithm

import "embed"

// Twins are the Lua twins, by path: "bucket/bucket.lua" and so on. They read and write
// the same states as the Go twins, in Redis.
//
//go:embed */*.lua
var Twins embed.FS
