module github.com/weirproject/weir/contrib/connectlimit

go 1.26.0

replace github.com/weirproject/weir => ../..

require (
	connectrpc.com/connect v1.21.1
	github.com/weirproject/weir v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
