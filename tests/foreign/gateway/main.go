// A gateway from REST to a gRPC server, made of the runtime of grpc-gateway: `gateway DESCRIPTORS ADDRESS`. It does for
// any descriptors the same as the code of its generator. It sends the requests of standard input to itself and to the
// address, and prints the answers that differ.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

func main() {
	bytes, err := os.ReadFile(os.Args[1])
	check(err)
	set := new(descriptorpb.FileDescriptorSet)
	check(proto.Unmarshal(bytes, set))
	files, err := protodesc.NewFiles(set)
	check(err)
	backend, err := grpc.NewClient(os.Args[2], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	marshaler := &runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{EmitUnpopulated: false},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler),
		// As the comments of google.api.HttpRule demand.
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptReserved),
	)
	var routes []*route
	isKnown := func(path string) bool {
		_, err := protoregistry.GlobalFiles.FindFileByPath(path)
		return err == nil
	}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if isKnown(file.Path()) {
			return true
		}
		// Parameters find their enums there.
		for e := range file.Enums().Len() {
			check(protoregistry.GlobalTypes.RegisterEnum(dynamicpb.NewEnumType(file.Enums().Get(e))))
		}
		for s := range file.Services().Len() {
			methods := file.Services().Get(s).Methods()
			for m := range methods.Len() {
				routes = append(routes, routesOf(methods.Get(m))...)
			}
		}
		return true
	})
	for _, one := range routes {
		one.backend, one.mux, one.marshaler = backend, mux, marshaler
		check(mux.HandlePath(one.verb, one.path, one.handle))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() { check(http.Serve(listener, mux)) }()
	check(compare("http://"+listener.Addr().String(), "http://"+os.Args[2]))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A binding of a method.
type route struct {
	method         protoreflect.MethodDescriptor
	verb, path     string
	body, response string
	backend        *grpc.ClientConn
	mux            *runtime.ServeMux
	marshaler      runtime.Marshaler
}

func routesOf(method protoreflect.MethodDescriptor) []*route {
	rule, ok := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok || rule == nil || method.IsStreamingClient() {
		return nil
	}
	var routes []*route
	for _, rule := range append([]*annotations.HttpRule{rule}, rule.AdditionalBindings...) {
		one := &route{method: method, body: rule.Body, response: rule.ResponseBody}
		switch pattern := rule.Pattern.(type) {
		case *annotations.HttpRule_Get:
			one.verb, one.path = "GET", pattern.Get
		case *annotations.HttpRule_Put:
			one.verb, one.path = "PUT", pattern.Put
		case *annotations.HttpRule_Post:
			one.verb, one.path = "POST", pattern.Post
		case *annotations.HttpRule_Delete:
			one.verb, one.path = "DELETE", pattern.Delete
		case *annotations.HttpRule_Patch:
			one.verb, one.path = "PATCH", pattern.Patch
		case *annotations.HttpRule_Custom:
			one.verb, one.path = pattern.Custom.Kind, pattern.Custom.Path
		}
		routes = append(routes, one)
	}
	return routes
}

func (r *route) handle(w http.ResponseWriter, req *http.Request, params map[string]string) {
	ctx, err := runtime.AnnotateContext(req.Context(), r.mux, req, r.name())
	if err != nil {
		runtime.HTTPError(ctx, r.mux, r.marshaler, w, req, err)
		return
	}
	message, err := r.message(req, params)
	if err != nil {
		runtime.HTTPError(ctx, r.mux, r.marshaler, w, req, status.Error(codes.InvalidArgument, err.Error()))
		return
	}
	if r.method.IsStreamingServer() {
		r.stream(ctx, w, req, message)
		return
	}
	var metadata runtime.ServerMetadata
	answer := r.answer()
	err = r.backend.Invoke(ctx, r.name(), message, answer, grpc.Header(&metadata.HeaderMD), grpc.Trailer(&metadata.TrailerMD))
	ctx = runtime.NewServerMetadataContext(ctx, metadata)
	if err != nil {
		runtime.HTTPError(ctx, r.mux, r.marshaler, w, req, err)
		return
	}
	runtime.ForwardResponseMessage(ctx, r.mux, r.marshaler, w, req, r.bodyOf(answer))
}

func (r *route) stream(ctx context.Context, w http.ResponseWriter, req *http.Request, message proto.Message) {
	stream, err := r.backend.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, r.name())
	if err == nil {
		err = errors.Join(stream.SendMsg(message), stream.CloseSend())
	}
	var metadata runtime.ServerMetadata
	if err == nil {
		metadata.HeaderMD, err = stream.Header()
	}
	ctx = runtime.NewServerMetadataContext(ctx, metadata)
	if err != nil {
		runtime.HTTPError(ctx, r.mux, r.marshaler, w, req, err)
		return
	}
	runtime.ForwardResponseStream(ctx, r.mux, r.marshaler, w, req, func() (proto.Message, error) {
		answer := r.answer()
		err := stream.RecvMsg(answer)
		return r.bodyOf(answer), err
	})
}

func (r *route) name() string {
	return fmt.Sprintf("/%s/%s", r.method.Parent().FullName(), r.method.Name())
}

func (r *route) answer() proto.Message {
	if r.method.Output().FullName() == "google.api.HttpBody" {
		return new(httpbody.HttpBody)
	}
	return dynamicpb.NewMessage(r.method.Output())
}

// The message of a request.
func (r *route) message(req *http.Request, params map[string]string) (proto.Message, error) {
	message := dynamicpb.NewMessage(r.method.Input())
	var bound [][]string
	if r.body != "" {
		content, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if err := r.readBody(message, content, req.Method); err != nil {
			return nil, err
		}
		bound = append(bound, strings.Split(r.body, "."))
	}
	for name, value := range params {
		if field := message.Descriptor().Fields().ByName(protoreflect.Name(name)); field != nil && field.IsList() {
			values := url.Values{name: strings.Split(value, ",")}
			if err := runtime.PopulateQueryParameters(message, values, utilities.NewDoubleArray(nil)); err != nil {
				return nil, err
			}
		} else if err := runtime.PopulateFieldFromPath(message, name, value); err != nil {
			return nil, err
		}
		bound = append(bound, strings.Split(name, "."))
	}
	if r.body == "*" {
		return message, nil
	}
	if err := req.ParseForm(); err != nil {
		return nil, err
	}
	return message, runtime.PopulateQueryParameters(message, req.Form, utilities.NewDoubleArray(bound))
}

func (r *route) readBody(message *dynamicpb.Message, content []byte, verb string) error {
	var into proto.Message = message
	if r.body != "*" {
		inner := message.ProtoReflect()
		parts := strings.Split(r.body, ".")
		for _, part := range parts[:len(parts)-1] {
			inner = inner.Mutable(inner.Descriptor().Fields().ByName(protoreflect.Name(part))).Message()
		}
		field := inner.Descriptor().Fields().ByName(protoreflect.Name(parts[len(parts)-1]))
		if field.Message() == nil {
			// protojson reads messages only.
			content = append(append([]byte("{\""+string(field.Name())+"\":"), content...), '}')
			return protojson.Unmarshal(content, inner.Interface())
		}
		into = inner.Mutable(field).Message().Interface()
	}
	err := r.marshaler.NewDecoder(bytes.NewReader(content)).Decode(into)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	mask := message.Descriptor().Fields().ByName("update_mask")
	if verb != "PATCH" || r.body == "*" || mask == nil {
		return nil
	}
	made, err := runtime.FieldMaskFromRequestBody(bytes.NewReader(content), into)
	if err != nil {
		return err
	}
	message.Set(mask, protoreflect.ValueOfMessage(made.ProtoReflect()))
	return nil
}

// A response of which one field is the body.
type responseBody struct {
	proto.Message
	field protoreflect.FieldDescriptor
}

func (b responseBody) XXX_ResponseBody() any {
	value := b.ProtoReflect().Get(b.field)
	if !b.field.IsList() {
		return value.Message().Interface()
	}
	all := []proto.Message{}
	for index := range value.List().Len() {
		all = append(all, value.List().Get(index).Message().Interface())
	}
	return all
}

func (r *route) bodyOf(answer proto.Message) proto.Message {
	if r.response == "" {
		return answer
	}
	return responseBody{answer, r.method.Output().Fields().ByName(protoreflect.Name(r.response))}
}
