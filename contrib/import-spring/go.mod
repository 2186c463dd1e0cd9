module github.com/weirproject/weir/contrib/import-spring

go 1.26.0

require (
	github.com/weirproject/weir v0.0.0
	go.yaml.in/yaml/v4 v4.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/weirproject/weir/tools v0.0.0
	golang.org/x/text v0.43.0 // indirect
)
