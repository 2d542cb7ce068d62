// twirpgen lets Twirp's own generator make the code of BenchmarkService and BytesService, without protoc.
//
// `twirpgen DIRECTORY` leaves the package in the directory. The messages are those that package benchmark describes.
package main

import (
	"bytes"
	"errors"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	log.SetFlags(0)
	wrappers := protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)
	own := &descriptorpb.FileDescriptorProto{
		Name:       proto.String("benchmark.proto"),
		Syntax:     proto.String("proto3"),
		Dependency: []string{wrappers.GetName()},
		Options:    &descriptorpb.FileOptions{GoPackage: proto.String("grpcbench/internal/twirpbench")},
		Service: []*descriptorpb.ServiceDescriptorProto{
			service("BenchmarkService", ".google.protobuf.StringValue"),
			service("BytesService", ".google.protobuf.BytesValue"),
		},
	}
	files, err := generate(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{own.GetName()},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{wrappers, own},
	})
	if err != nil {
		log.Fatal(err)
	}
	directory := os.Args[1]
	if err := os.MkdirAll(directory, 0o755); err != nil {
		log.Fatal(err)
	}
	for _, file := range files {
		path := filepath.Join(directory, filepath.Base(file.GetName()))
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

func service(name, message string) *descriptorpb.ServiceDescriptorProto {
	return &descriptorpb.ServiceDescriptorProto{
		Name: proto.String(name),
		Method: []*descriptorpb.MethodDescriptorProto{{
			Name:       proto.String("Benchmark"),
			InputType:  proto.String(message),
			OutputType: proto.String(message),
		}},
	}
}

// generate runs the generator, which go.mod pins as a tool.
func generate(request *pluginpb.CodeGeneratorRequest) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	generator := exec.Command("go", "tool", "protoc-gen-twirp")
	generator.Stdin, generator.Stderr = bytes.NewReader(input), os.Stderr
	output, err := generator.Output()
	if err != nil {
		return nil, err
	}
	response := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(output, response); err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, errors.New(response.GetError())
	}
	return response.File, nil
}
