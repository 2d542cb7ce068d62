//! Server reflection, over frisbee and in process.

use crate::either::{assert_status, either_way};
use frpc::{
    Answer, BoxService, Call, Channel, Code, MessageType, Method, Service, Status, StreamSender, Streaming,
    prost::Message,
    prost_types::{
        DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
        FileDescriptorSet, MethodDescriptorProto, OneofDescriptorProto, ServiceDescriptorProto,
    },
};
use frpc_services::{
    Reflection,
    protos::grpc::reflection::{
        v1::{
            ExtensionRequest, ServerReflectionRequest, ServerReflectionResponse,
            server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest::{self, *},
            server_reflection_response::MessageResponse,
        },
        v1alpha,
    },
};
use support::calls::{TestServer, TestService};

/// The file of the test service, and its imports.
const TEST_FILES: [&str; 4] =
    ["test.proto", "google/api/annotations.proto", "google/api/http.proto", "google/protobuf/descriptor.proto"];

fn services() -> Vec<BoxService> {
    vec![
        Reflection::v1().into(),
        Reflection::v1alpha().into(),
        TestServer::new(TestService::default()).into(),
        Shelf.into(),
        ByHand.into(),
    ]
}

/// A stream of questions.
struct Asking {
    questions: StreamSender<ServerReflectionRequest>,
    answers: Streaming<ServerReflectionResponse>,
}

impl Asking {
    async fn new(channel: &Channel) -> Self {
        let (questions, requests) = Streaming::channel(1);
        let client = ServerReflectionClient::new(channel.clone());
        let answers = client.server_reflection_info(requests).await.unwrap().into_inner();
        Self { questions, answers }
    }

    async fn ask(&mut self, question: MessageRequest) -> MessageResponse {
        let request = ServerReflectionRequest { host: "localhost".to_owned(), message_request: Some(question) };
        self.questions.send(request.clone()).await.unwrap();
        let response = self.answers.message().await.unwrap().unwrap();
        assert_eq!((response.valid_host.as_str(), response.original_request), ("localhost", Some(request)));
        response.message_response.unwrap()
    }

    /// Returns the file names in an answer.
    async fn files(&mut self, question: MessageRequest) -> Vec<String> {
        let MessageResponse::FileDescriptorResponse(response) = self.ask(question).await else { panic!("no files") };
        let files = response.file_descriptor_proto.into_iter();
        files.map(|file| FileDescriptorProto::decode(file).unwrap().name().to_owned()).collect()
    }

    /// Returns the code and the message of an error.
    async fn error(&mut self, question: MessageRequest) -> (i32, String) {
        let MessageResponse::ErrorResponse(error) = self.ask(question).await else { panic!("no error") };
        (error.error_code, error.error_message)
    }
}

#[test]
fn every_service_is_listed_once() {
    either_way(|| {
        (services(), async move |channel| {
            let answer = Asking::new(&channel).await.ask(ListServices(String::new())).await;
            let MessageResponse::ListServicesResponse(list) = answer else { panic!("no list") };
            let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
            let expected = [
                "by.Hand",
                "calls.Test",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
                "shelf.v1.Shelf",
            ];
            assert_eq!(names, expected);
        })
    });
}

#[test]
fn files_are_found_by_all_their_symbols() {
    either_way(|| {
        (services(), async move |channel| {
            for symbol in ["calls.Test", "calls.Test.Say", "calls.Words", "calls.Words.text"] {
                let files = Asking::new(&channel).await.files(FileContainingSymbol(symbol.to_owned())).await;
                assert_eq!(files, TEST_FILES, "{symbol}");
            }
            for symbol in [
                "shelf.v1.Shelf",
                "shelf.v1.Shelf.Look",
                "shelf.v1.Book",
                "shelf.v1.Book.title",
                "shelf.v1.Book.kind",
                "shelf.v1.Book.Page",
                "shelf.v1.Book.Page.number",
                "shelf.v1.Book.Size",
                "shelf.v1.Book.LARGE",
                "shelf.v1.Colour",
                "shelf.v1.RED",
                "shelf.v1.signed",
                "shelf.v1.Book.dated",
            ] {
                let files = Asking::new(&channel).await.files(FileContainingSymbol(symbol.to_owned())).await;
                assert_eq!(files, ["shelf.proto", "base.proto", "root.proto"], "{symbol}");
            }
        })
    });
}

#[test]
fn each_import_is_sent_once_per_stream() {
    either_way(|| {
        (services(), async move |channel| {
            let mut asking = Asking::new(&channel).await;
            assert_eq!(asking.files(FileByFilename("base.proto".to_owned())).await, ["base.proto", "root.proto"]);
            assert_eq!(asking.files(FileByFilename("shelf.proto".to_owned())).await, ["shelf.proto"]);
            assert_eq!(asking.files(FileByFilename("root.proto".to_owned())).await, ["root.proto"], "it is asked for");
        })
    });
}

#[test]
fn extensions_are_found_by_message_and_number() {
    either_way(|| {
        (services(), async move |channel| {
            let mut asking = Asking::new(&channel).await;
            let of = |containing_type: &str, extension_number| {
                let containing_type = containing_type.to_owned();
                FileContainingExtension(ExtensionRequest { containing_type, extension_number })
            };
            assert_eq!(asking.files(of("base.Thing", 100)).await[0], "shelf.proto");
            assert_eq!(asking.files(of("base.Thing", 101)).await[0], "shelf.proto");
            assert_eq!(asking.error(of("base.Thing", 102)).await.1, "unknown extension 102 of 'base.Thing'");
            for (message, expected) in [("base.Thing", vec![100, 101]), ("shelf.v1.Book", vec![])] {
                let answer = asking.ask(AllExtensionNumbersOfType(message.to_owned())).await;
                let MessageResponse::AllExtensionNumbersResponse(numbers) = answer else { panic!("no numbers") };
                assert_eq!((numbers.base_type_name.as_str(), numbers.extension_number), (message, expected));
            }
        })
    });
}

#[test]
fn unknown_symbols_are_answered_and_the_stream_continues() {
    either_way(|| {
        (services(), async move |channel| {
            let mut asking = Asking::new(&channel).await;
            let not_found = Code::NotFound as i32;
            for (question, message) in [
                (FileByFilename("none.proto".to_owned()), "unknown file 'none.proto'"),
                (FileContainingSymbol("calls".to_owned()), "unknown symbol 'calls'"),
                (FileContainingSymbol("by.Hand".to_owned()), "unknown symbol 'by.Hand'"),
                (AllExtensionNumbersOfType("a.B".to_owned()), "unknown message 'a.B'"),
            ] {
                assert_eq!(asking.error(question).await, (not_found, message.to_owned()));
            }
            assert_eq!(asking.files(FileContainingSymbol("calls.Test".to_owned())).await, TEST_FILES);
        })
    });
}

#[test]
fn an_empty_request_ends_the_stream() {
    either_way(|| {
        (services(), async move |channel| {
            let mut asking = Asking::new(&channel).await;
            asking.questions.send(ServerReflectionRequest::default()).await.unwrap();
            let end = asking.answers.message().await;
            assert_status(end, Code::InvalidArgument, "the request is empty: set a field of message_request");
        })
    });
}

#[test]
fn v1alpha_answers_like_v1() {
    either_way(|| {
        (services(), async move |channel| {
            use v1alpha::{server_reflection_request::MessageRequest, server_reflection_response::MessageResponse};
            let symbol = MessageRequest::FileContainingSymbol("grpc.reflection.v1.ServerReflection".to_owned());
            let question =
                v1alpha::ServerReflectionRequest { host: "localhost".to_owned(), message_request: Some(symbol) };
            let client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
            let questions = Streaming::from_iter([question.clone()]);
            let mut answers = client.server_reflection_info(questions).await.unwrap().into_inner();
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(answer.original_request, Some(question));
            let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else {
                panic!("no files")
            };
            let [file] = &files.file_descriptor_proto[..] else { panic!("not one file") };
            assert_eq!(FileDescriptorProto::decode(&file[..]).unwrap().name(), "grpc/reflection/v1/reflection.proto");
            assert_eq!(answers.message().await.unwrap(), None, "the questions have ended");
        })
    });
}

/// A service with every kind of declaration in its descriptors.
struct Shelf;

impl Service for Shelf {
    const NAME: &'static str = "shelf.v1.Shelf";
    const METHODS: &'static [Method] = &[Method::unary("shelf.v1.Shelf", "Look", 1000).with_types(&BOOK, &BOOK)];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        call.unknown()
    }
}

// The file contains encoded descriptors. `the_test_schema_has_the_expected_descriptors` builds and compares them.
const BOOK: MessageType = MessageType::new("shelf.v1.Book", 1, include_bytes!("shelf.binpb"));

#[test]
fn the_test_schema_has_the_expected_descriptors() {
    let named = |name: &str| Some(name.to_owned());
    let field =
        |name: &str, number| FieldDescriptorProto { name: named(name), number: Some(number), ..Default::default() };
    let extension = |name: &str, number| FieldDescriptorProto { extendee: named(".base.Thing"), ..field(name, number) };
    let declared = |name: &str, value: &str| EnumDescriptorProto {
        name: named(name),
        value: vec![EnumValueDescriptorProto { name: named(value), number: Some(0), options: None }],
        ..Default::default()
    };
    let root = FileDescriptorProto { name: named("root.proto"), ..Default::default() };
    let base = FileDescriptorProto {
        name: named("base.proto"),
        package: named("base"),
        dependency: vec!["root.proto".to_owned()],
        message_type: vec![DescriptorProto { name: named("Thing"), ..Default::default() }],
        ..Default::default()
    };
    let page = DescriptorProto { name: named("Page"), field: vec![field("number", 1)], ..Default::default() };
    let book = DescriptorProto {
        name: named("Book"),
        field: vec![field("title", 1)],
        oneof_decl: vec![OneofDescriptorProto { name: named("kind"), options: None }],
        nested_type: vec![page],
        enum_type: vec![declared("Size", "LARGE")],
        extension: vec![extension("dated", 101)],
        ..Default::default()
    };
    let look = MethodDescriptorProto { name: named("Look"), ..Default::default() };
    let shelf = FileDescriptorProto {
        name: named("shelf.proto"),
        package: named("shelf.v1"),
        // An import missing from the program.
        dependency: vec!["base.proto".to_owned(), "missing.proto".to_owned()],
        message_type: vec![book],
        enum_type: vec![declared("Colour", "RED")],
        extension: vec![extension("signed", 100)],
        service: vec![ServiceDescriptorProto { name: named("Shelf"), method: vec![look], options: None }],
        ..Default::default()
    };
    let set = FileDescriptorSet { file: vec![root, base, shelf] }.encode_to_vec();
    if BOOK.descriptors != set {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/shelf.binpb"), set).unwrap();
        panic!("tests/services/shelf.binpb was another, and is written now");
    }
}

/// A service with methods without message types.
struct ByHand;

impl Service for ByHand {
    const NAME: &'static str = "by.Hand";
    const METHODS: &'static [Method] = &[Method::unary("by.Hand", "Do", 1001)];

    async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
        call.unknown()
    }
}
