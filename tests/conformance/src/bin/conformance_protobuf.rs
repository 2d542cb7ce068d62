//! The program that protobuf's conformance_test_runner judges: it converts messages between protobuf and JSON, by way of
//! polyglot.

use std::io::{self, Read, Write};

use frpc::{
    codec::{self, json},
    prost::Message,
};

use self::protos::{
    conformance::{
        ConformanceRequest, ConformanceResponse, FailureSet, TestCategory, WireFormat, conformance_request::Payload,
        conformance_response::Result as Answer,
    },
    protobuf_test_messages::{
        editions::{self, TestAllTypesEdition2023},
        proto2::{self, TestAllTypesProto2},
        proto3::{self, TestAllTypesProto3},
    },
};

/// The generated code.
mod protos {
    #![allow(missing_docs, unreachable_pub, dead_code, reason = "the messages belong to the suite")]
    include!(concat!(env!("OUT_DIR"), "/protobuf/_includes.rs"));
}

const ANY_TYPES: &json::Types = &json::Types::of_packages(&[
    proto2::json_types,
    proto3::json_types,
    editions::json_types,
    editions::proto2::json_types,
    editions::proto3::json_types,
]);

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let mut len = [0; 4];
        match input.read_exact(&mut len) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let mut request = vec![0; u32::from_le_bytes(len) as usize];
        input.read_exact(&mut request)?;
        let answer = match ConformanceRequest::decode(&request[..]) {
            Ok(request) => answer(request),
            Err(error) => Answer::RuntimeError(error.to_string()),
        };
        let response = ConformanceResponse { result: Some(answer) }.encode_to_vec();
        let len = u32::try_from(response.len()).expect("responses are short");
        output.write_all(&len.to_le_bytes())?;
        output.write_all(&response)?;
        output.flush()?;
    }
}

fn answer(request: ConformanceRequest) -> Answer {
    match request.message_type.as_str() {
        // The list of expected failures, which the suite asks for in the beginning.
        "conformance.FailureSet" => Answer::ProtobufPayload(FailureSet::default().encode_to_vec()),
        "protobuf_test_messages.proto3.TestAllTypesProto3" => convert::<TestAllTypesProto3>(request),
        "protobuf_test_messages.proto2.TestAllTypesProto2" => convert::<TestAllTypesProto2>(request),
        "protobuf_test_messages.editions.TestAllTypesEdition2023" => convert::<TestAllTypesEdition2023>(request),
        "protobuf_test_messages.editions.proto2.TestAllTypesProto2" => {
            convert::<editions::proto2::TestAllTypesProto2>(request)
        }
        "protobuf_test_messages.editions.proto3.TestAllTypesProto3" => {
            convert::<editions::proto3::TestAllTypesProto3>(request)
        }
        name => Answer::RuntimeError(format!("there is no message {name}")),
    }
}

fn convert<M: Message + codec::Message + json::Message>(request: ConformanceRequest) -> Answer {
    let message = match &request.payload {
        Some(Payload::ProtobufPayload(bytes)) => codec::Format::Proto
            .decode_within::<M>(&bytes.clone().into(), codec::MemoryBudget::default())
            .map_err(|error| error.to_string()),
        Some(Payload::JsonPayload(text)) => {
            let read = match request.test_category() {
                TestCategory::JsonIgnoreUnknownParsingTest => json::from_str_with(text, ANY_TYPES),
                _ => json::from_str_strict(text, ANY_TYPES),
            };
            read.map_err(|error| error.to_string())
        }
        _ => return Answer::Skipped("only protobuf and JSON are supported".to_owned()),
    };
    let message: M = match message {
        Ok(message) => message,
        Err(error) => return Answer::ParseError(error),
    };
    // Polyglot has no suite of its own, so each message also goes through it.
    let message: M = match codec::Format::Polyglot
        .encode(&message)
        .and_then(|bytes| codec::Format::Polyglot.decode(&bytes.into_bytes()))
    {
        Ok(message) => message,
        Err(error) => return Answer::RuntimeError(error.to_string()),
    };
    match request.requested_output_format() {
        WireFormat::Protobuf => Answer::ProtobufPayload(message.encode_to_vec()),
        WireFormat::Json => match json::to_string_with(&message, ANY_TYPES) {
            Ok(text) => Answer::JsonPayload(text),
            Err(error) => Answer::SerializeError(error.to_string()),
        },
        _ => Answer::Skipped("only protobuf and JSON are supported".to_owned()),
    }
}
