// Package browser has the console's tests in Chromium, on the built program. It is a module of its own, so that
// programs that import weir do not get what drives a browser.
package browser
