module github.com/weirproject/weir/contrib/echolimit

go 1.26.0

replace github.com/weirproject/weir => ../..

require (
	github.com/labstack/echo/v5 v5.4.5
	github.com/weirproject/weir v0.0.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
