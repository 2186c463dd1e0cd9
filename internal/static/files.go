// Package static has the scripts, styles and texts of the console, and of the page that weir backtest writes.
package static

import "embed"

// Files has them by their path in this folder.
//
//go:embed *.js *.css *.html *.svg pages texts vendor
var Files embed.FS
