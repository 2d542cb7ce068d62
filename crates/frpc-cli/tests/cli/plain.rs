//! Servers of plain fRPC, without paths, reflection and protocol buffers: our own server in plain mode, and servers
//! with invalid answers.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
};

use serde_json::{Value, json};

use crate::program::{Directory, PROTO, Ran, Server, frpc, frpc_with_input};

fn plain_server() -> Server {
    Server::start_with("tcp://127.0.0.1:0", &["--plain"])
}

fn call(address: &str, arguments: &[&str]) -> Ran {
    frpc(&[&["call", address, "--proto", PROTO, "--json"], arguments].concat())
}

/// Returns the failure printed as JSON by a run.
pub(crate) fn told(ran: &Ran) -> Value {
    let said: Value = serde_json::from_str(&ran.err).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    said["error"].clone()
}

#[test]
fn every_kind_of_call_works() {
    let server = plain_server();
    let at = &*server.address;
    let message = json!({
        "text": "hello", "number": "-7", "data": "/wA=", "tags": ["a", ""], "labels": { "k": "v" }, "mood": "MOOD_CURIOUS",
        "inner": { "inner": { "text": "deep" } },
    });
    let ran = call(at, &["Say", "-d", &message.to_string(), "-v"]);
    assert_eq!(ran.json(), [message], "{ran:?}");
    assert!(ran.err.contains("> frpc.echo.v1.Echo/Say · unary · polyglot"), "{}", ran.err);
    let ran = call(at, &["Repeat", "message.text=x", "times=2"]);
    assert_eq!(ran.json(), vec![json!({ "text": "x" }); 2]);
    let ran = call(at, &["Gather", "-d", r#"{"text": "a", "number": 1} {"text": "b", "number": 2}"#]);
    assert_eq!(ran.json(), [json!({ "text": "a b", "number": "3" })]);
    let chat = ["call", at, "Chat", "--proto", PROTO, "--json", "-d", "@-"];
    let ran = frpc_with_input(&chat, r#"{"text": "one"} {"text": "two"}"#);
    assert_eq!(ran.json(), [json!({ "text": "one" }), json!({ "text": "two" })]);
}

#[test]
fn status_codes_of_the_server_are_kept() {
    let server = plain_server();
    let ran = call(&server.address, &["Fail", "code=5", "text=no such thing"]);
    assert_eq!(ran.code, 64 + 5, "{ran:?}");
    assert_eq!(told(&ran)["message"], "no such thing");
}

#[test]
fn plain_and_other_servers_can_be_compared() {
    let (plain, extended) = (plain_server(), Server::start());
    let sides = ["bench", &plain.address, "Say", "text=x", "--proto", PROTO, "--against", &extended.address];
    let ran = frpc(&[&sides[..], &["-n", "20", "-c", "2", "--rounds", "1", "--warmup", "0s", "--json"]].concat());
    let loads = &ran.json()[0]["loads"];
    assert_eq!((&loads[0]["calls"], &loads[1]["calls"]), (&json!(20), &json!(20)), "{ran:?}");
}

#[test]
fn a_descriptor_set_replaces_proto_files() {
    let server = plain_server();
    let directory = Directory::new("plain-set");
    let set = protox::compile([PROTO], [concat!(env!("CARGO_MANIFEST_DIR"), "/proto")]).unwrap();
    let set = directory.write("echo.binpb", frpc::prost::Message::encode_to_vec(&set));
    let ran = frpc(&["call", &server.address, "Say", "text=x", "--descriptor-set", &set, "--json"]);
    assert_eq!(ran.json(), [json!({ "text": "x" })], "{ran:?}");
}

#[test]
fn unsupported_operations_on_plain_peers_suggest_options() {
    let server = plain_server();
    let at = &*server.address;
    for arguments in [&["call", at, "Say", "text=x"][..], &["list", at], &["describe", at]] {
        let ran = frpc(arguments);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("plain fRPC") && ran.err.contains("--proto FILE"), "{}", ran.err);
    }
    for option in ["--as-json", "--no-schema"] {
        let ran = call(at, &["Say", "text=x", option]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(told(&ran)["message"].as_str().unwrap().contains("no JSON"), "{ran:?}");
    }
    let ran = call(at, &["Say", "text=x", "-H", "name: value"]);
    assert_eq!(ran.code, 64 + 9, "{ran:?}");
    assert!(told(&ran)["try"].to_string().contains("without -H"), "{ran:?}");
}

#[test]
fn a_mismatching_proto_file_is_reported() {
    let directory = Directory::new("plain-other");
    let other = "syntax = \"proto3\"; message M { bool yes = 1; } service S { rpc Say(M) returns (M); }";
    let file = directory.write("other.proto", other);
    let ran = frpc(&["call", &answering("0800050a00"), "Say", "--proto", &file, "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let said = told(&ran);
    assert!(said["message"].as_str().unwrap().contains("M.yes: expected bool, found string"), "{said}");
    assert!(said["try"].to_string().contains("the proto files of the server"), "{said}");
}

#[test]
fn well_known_types_are_ordinary_messages() {
    let directory = Directory::new("plain-well-known");
    let timed = "syntax = \"proto3\"; import \"google/protobuf/timestamp.proto\"; message M { google.protobuf.Timestamp at = 1; } \
                 service S { rpc When(M) returns (M); }";
    let file = directory.write("timed.proto", timed);
    let ran =
        frpc(&["call", &answering("080008000d020c00"), "When", "at=2020-01-01T00:00:00Z", "--proto", &file, "--json"]);
    assert_eq!(ran.json(), [json!({ "at": "1970-01-01T00:00:01Z" })], "{ran:?}");
}

#[test]
fn schemas_unsupported_by_frpc_are_reported_with_the_file() {
    let (server, directory) = (plain_server(), Directory::new("plain-endless"));
    let endless = "syntax = \"proto2\"; message M { required M m = 1; } service S { rpc Say(M) returns (M); }";
    let file = directory.write("endless.proto", endless);
    let ran = frpc(&["call", &server.address, "Say", "--proto", &file, "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let message = told(&ran)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("requires itself") && message.contains("--> endless.proto"), "{message}");
}

#[test]
fn invalid_responses_are_reported_as_local_failures() {
    let empty = "0800050a000d00040a000a0001050a000205050a00";
    let nested = format!("{}00", empty.repeat(200));
    let cases = [
        ("", "the bytes end here"),
        ("08", "the bytes end here"),
        ("0800050a05616263", "claims a length of 5, 3 bytes are left"),
        ("0800050affffffff0f", "claims a length of 4294967295"),
        ("08000c02", "Message.text: expected string, found i32"),
        ("0800050a000d00040a000a0001050affffffff0f", "Message.tags: claims a length of 4294967295"),
        (&nested, "nested deeper than"),
    ];
    for (answer, why) in cases {
        let ran = call(&answering(answer), &["Say"]);
        assert_eq!((ran.code, &*ran.out), (1, ""), "{answer}: {ran:?}");
        let said = told(&ran);
        assert!(said["message"].as_str().unwrap().contains(why), "{answer}: {said}");
    }
    assert_eq!(call(&answering("00"), &["Say"]).json(), [json!({})]);
    assert_eq!(call(&answering(&format!("{empty}00")), &["Say"]).json(), [json!({})]);
}

/// Starts a server that answers every call with these bytes.
fn answering(content: &str) -> String {
    let digits: Vec<_> = content.chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
    let content: Vec<_> = digits.chunks(2).map(|pair| 16 * pair[0] + pair[1]).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        // Ends with an error after the caller has disconnected.
        let (mut socket, _) = listener.accept()?;
        loop {
            answer(&mut socket, &content)?;
        }
        #[expect(unreachable_code, reason = "it names the type")]
        io::Result::Ok(())
    });
    address
}

/// Reads a packet, and answers it if it is a PING or a call: magic, id, operation, length, content.
fn answer(socket: &mut TcpStream, content: &[u8]) -> io::Result<()> {
    let mut head = [0; 10];
    socket.read_exact(&mut head)?;
    let [_, _, id @ .., _, _, _, _, _, _] = head;
    let (operation, len) = (&head[4..6], u32::from_be_bytes(head[6..].try_into().unwrap()));
    io::copy(&mut socket.take(len.into()), &mut io::sink())?;
    let (operation, content) = match operation {
        [0, 0] => ([0, 1], &[][..]),
        [0, 10] => ([0, 10], content),
        _ => return Ok(()),
    };
    let len = u32::try_from(content.len()).unwrap().to_be_bytes();
    socket.write_all(&[&[0, 0x0f][..], &id, &operation, &len, content].concat())
}
