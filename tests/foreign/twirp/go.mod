module twirpclient

go 1.25.0

require github.com/twitchtv/twirp v8.1.3+incompatible

require (
	github.com/pkg/errors v0.9.1 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
