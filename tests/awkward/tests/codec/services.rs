//! The generated service and client of `echo.proto` in one process: every kind of call, including the encoding.

use awkward::golden::echo::echo::{
    Words,
    echo_client::EchoClient,
    echo_server::{Echo, EchoServer},
    parrot_client::ParrotClient,
};
use frpc::{
    Channel, Code, Method, Request, Response, Status, Streaming, prost::Message as _, prost_types::FileDescriptorSet,
};
use frpc_schema::Schema;

struct Service;

impl Echo for Service {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        if request.get_ref().text.is_empty() {
            return Err(Status::invalid_argument("nothing to say"));
        }
        Ok(request.into_inner().into())
    }

    async fn repeat(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        let words = request.into_inner();
        Ok(Streaming::from_iter(vec![words; 3]).into())
    }

    async fn collect(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let (mut words, mut all) = (request.into_inner(), String::new());
        while let Some(next) = words.message().await? {
            all += &next.text;
        }
        Ok(said(&all).into())
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let (sender, answers) = Streaming::channel(1);
        let mut words = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(next)) = words.message().await {
                let answer = sender.send(said(&format!("re: {}", next.text))).await;
                if answer.is_err() {
                    return;
                }
            }
            sender.fail(Status::out_of_range("no more words")).await;
        });
        Ok(answers.into())
    }

    async fn shout(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        Ok(request.into_inner().into())
    }
}

fn said(text: &str) -> Words {
    Words { text: text.to_owned() }
}

fn client() -> EchoClient {
    EchoClient::new(Channel::in_process(EchoServer::new(Service)))
}

async fn all(mut words: Streaming<Words>) -> (Vec<String>, Option<Status>) {
    let mut heard = Vec::new();
    loop {
        match words.message().await {
            Ok(Some(next)) => heard.push(next.text),
            Ok(None) => return (heard, None),
            Err(status) => return (heard, Some(status)),
        }
    }
}

#[tokio::test]
async fn a_unary_call_returns_the_response_or_the_status() {
    let client = client();
    assert_eq!(client.say(said("hello")).await.unwrap().into_inner(), said("hello"));
    assert_eq!(client.say(Request::new(said("hello"))).await.unwrap().into_inner(), said("hello"));
    let status = client.say(said("")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "nothing to say"));
}

#[tokio::test]
async fn streams_work_in_each_direction_and_both() {
    let client = client();
    let repeated = client.repeat(said("again")).await.unwrap().into_inner();
    assert_eq!(all(repeated).await.0, ["again"; 3]);

    let words = Streaming::from_iter(["one", "two"].map(said));
    assert_eq!(client.collect(words).await.unwrap().into_inner(), said("onetwo"));

    let words = Streaming::from_iter(["one", "two"].map(said));
    let (heard, status) = all(client.chat(words).await.unwrap().into_inner()).await;
    assert_eq!(heard, ["re: one", "re: two"]);
    assert_eq!(status.map(|status| status.code()), Some(Code::OutOfRange));
}

#[tokio::test]
async fn a_method_of_another_service_is_unimplemented() {
    let client = ParrotClient::new(Channel::in_process(EchoServer::new(Service)));
    let status = client.say(said("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "no method echo.Parrot/Say here"));
}

#[test]
fn a_status_is_one_pointer_wide() {
    assert_eq!(size_of::<Result<(), Status>>(), size_of::<usize>());
}

#[test]
fn the_services_of_a_package_are_in_its_descriptors() {
    let services = |set: &[u8]| {
        let set = FileDescriptorSet::decode(set).unwrap();
        let services = set.file.iter().flat_map(|file| {
            file.service.iter().map(move |service| {
                let methods: Vec<_> = service.method.iter().map(|method| method.name()).collect();
                format!("{}.{}: {}", file.package(), service.name(), methods.join(" "))
            })
        });
        services.collect::<Vec<_>>()
    };
    use awkward::golden::{echo, shop};
    let echo_services = ["echo.Echo: Say Repeat Collect Chat Shout", "echo.Parrot: Say"];
    assert_eq!(services(echo::echo::FILE_DESCRIPTOR_SET), echo_services);
    assert_eq!(services(shop::shop::order::v1::FILE_DESCRIPTOR_SET), ["shop.order.v1.Orders: Place Pick"]);
    assert_eq!(services(shop::shop::item::FILE_DESCRIPTOR_SET), [""; 0]);

    let files = |set: &[u8]| {
        let set = FileDescriptorSet::decode(set).unwrap();
        set.file.iter().map(|file| file.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(files(shop::FILE_DESCRIPTOR_SET), ["units.proto"]);
    assert_eq!(files(shop::shop::item::FILE_DESCRIPTOR_SET), ["shop/item.proto"]);
    let orders = files(shop::shop::order::v1::FILE_DESCRIPTOR_SET);
    assert!(
        ["units.proto", "shop/item.proto", "google/protobuf/empty.proto", "shop/order.proto"]
            .iter()
            .all(|file| orders.iter().any(|found| found == file)),
        "{orders:?}"
    );
}

#[test]
fn methods_have_the_fingerprints_of_their_messages() {
    use awkward::{
        golden::{echo::echo::echo_methods, shop::shop::order::v1::orders_methods},
        schemas::accepted::message_constants::types_methods,
    };
    let has_types = |method: &Method, names: [&str; 2]| {
        let types = method.types.unwrap();
        for (message, name) in [types.request, types.response].into_iter().zip(names) {
            let set = FileDescriptorSet::decode(message.descriptors).unwrap();
            let schema = Schema::read(&set, &Default::default()).unwrap();
            assert_eq!(message.name, name, "{method}");
            assert_eq!(Some(message.fingerprint), schema.fingerprints().of(name), "{method}");
        }
    };
    has_types(&echo_methods::SAY, ["echo.Words"; 2]);
    has_types(&echo_methods::CHAT, ["echo.Words"; 2]);
    has_types(&orders_methods::PLACE, ["shop.order.v1.Order", "google.protobuf.Empty"]);
    has_types(&orders_methods::PICK, ["shop.item.Item", "Units"]);
    let own = |names: [&str; 2]| names.map(|name| format!("accepted.message_constants.{name}"));
    has_types(&types_methods::TYPES, own(["OrderItem", "Order.Item"]).each_ref().map(String::as_str));
    has_types(
        &types_methods::FILE_DESCRIPTOR_SET,
        own(["FileDescriptorSet", "MessageType"]).each_ref().map(String::as_str),
    );
}
