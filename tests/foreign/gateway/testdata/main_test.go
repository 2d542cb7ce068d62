// Runs grpc-gateway's own tests of its examples against another gateway. build.sh puts this file in the place of their
// TestMain, which starts a gateway at fixed ports. The program prints the address of the services of the examples, which
// speak gRPC with protobuf and with JSON, and reads the address of the gateway.
package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/examples/internal/server"
	gwruntime "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

var descriptors = flag.String("descriptors", "", "write the descriptors of the examples to this file, and end")

// The tests of options of their library start gateways of their own. They are not run.
func runGateway(context.Context, string, ...gwruntime.ServeMuxOption) error {
	return errors.New("there is another gateway")
}

func waitForGateway(context.Context, uint16) error { return errors.New("there is another gateway") }

type jsonCodec struct{}

func (jsonCodec) Name() string { return "json" }

func (jsonCodec) Marshal(message any) ([]byte, error) {
	return protojson.Marshal(message.(proto.Message))
}

func (jsonCodec) Unmarshal(content []byte, message any) error {
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(content, message.(proto.Message))
}

// Gives bodies without a content type the type JSON. Without it, most tests would fail for this difference alone.
type typed struct{ http.RoundTripper }

func (t typed) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil && request.Header.Get("Content-Type") == "" {
		request = request.Clone(request.Context())
		request.Header.Set("Content-Type", "application/json")
	}
	return t.RoundTripper.RoundTrip(request)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if *descriptors != "" {
		content, err := proto.MarshalOptions{Deterministic: true}.Marshal(examples())
		check(err)
		check(os.WriteFile(*descriptors, content, 0o644))
		os.Exit(0)
	}
	encoding.RegisterCodec(jsonCodec{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() { check(server.ServeGRPC(context.Background(), listener)) }()
	fmt.Println(listener.Addr())
	var gateway string
	_, err = fmt.Scanln(&gateway)
	check(err)
	transport := http.DefaultTransport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, gateway)
	}
	http.DefaultTransport = typed{transport}
	os.Exit(m.Run())
}

// The files with services, and their imports, each after its own imports.
func examples() *descriptorpb.FileDescriptorSet {
	names := []string{"a_bit_of_everything", "echo_service", "excess_body", "flow_combination", "non_standard_names", "response_body_service", "stream", "unannotated_echo_service"}
	set, seen := new(descriptorpb.FileDescriptorSet), map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	for _, name := range names {
		file, err := protoregistry.GlobalFiles.FindFileByPath("examples/internal/proto/examplepb/" + name + ".proto")
		check(err)
		add(file)
	}
	return set
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
