//! The harness of protovalidate: cases for the rules of messages, and the answers of frisbee-rpc-validate to them.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use frpc::{
    Answer, Body, Call, Caller, Channel, Code, Head, Method, Status,
    codec::Format,
    prost_types::{Any, FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto},
};
use frpc_validate::{Validation, types::Violations};
use futures_util::future::{BoxFuture, FutureExt};
use prost::{Message, Oneof};

/// Cases by their names, with the descriptors of their messages.
#[derive(Clone, PartialEq, Message)]
pub struct ConformanceRequest {
    /// An encoded `FileDescriptorSet`. Decoded as one, it would lose the options of editions.
    #[prost(bytes = "bytes", tag = "2")]
    pub descriptors: Bytes,
    /// Messages to check.
    #[prost(btree_map = "string, message", tag = "3")]
    pub cases: BTreeMap<String, Any>,
}

/// The results of cases by their names.
#[derive(Clone, PartialEq, Message)]
pub struct ConformanceResponse {
    /// The outcomes of the cases.
    #[prost(btree_map = "string, message", tag = "1")]
    pub results: BTreeMap<String, CaseResult>,
}

/// The result of a case.
#[derive(Clone, PartialEq, Message)]
pub struct CaseResult {
    /// The outcome, which is always set.
    #[prost(oneof = "Outcome", tags = "1, 2, 3, 4, 5")]
    pub outcome: Option<Outcome>,
}

/// The outcome of a case.
#[derive(Clone, PartialEq, Oneof)]
pub enum Outcome {
    /// The message satisfies its rules.
    #[prost(bool, tag = "1")]
    Valid(bool),
    /// The message violates rules.
    #[prost(message, tag = "2")]
    Invalid(Violations),
    /// A rule does not compile.
    #[prost(string, tag = "3")]
    BrokenSchema(String),
    /// A rule failed.
    #[prost(string, tag = "4")]
    BrokenRule(String),
    /// Another failure.
    #[prost(string, tag = "5")]
    Unexpected(String),
}

/// A service with a method for each message type of the cases. The rules are checked by the layer on its channel.
const SERVICE: &str = "conformance.Cases";

/// Answers all cases.
pub async fn answer(request: ConformanceRequest) -> ConformanceResponse {
    let mut types: Vec<_> = request.cases.values().map(message_name).collect();
    types.sort_unstable();
    types.dedup();
    let (mut layers, mut results) = (HashMap::new(), BTreeMap::new());
    add_layers(&request.descriptors, &types, &mut layers);
    for (name, case) in &request.cases {
        let outcome = match &layers[message_name(case)] {
            Ok(checked) => checked.check(case).await,
            Err(error) => Outcome::BrokenSchema(error.clone()),
        };
        results.insert(name.clone(), CaseResult { outcome: Some(outcome) });
    }
    ConformanceResponse { results }
}

fn message_name(case: &Any) -> &str {
    case.type_url.rsplit('/').next().unwrap_or_default()
}

/// A channel with the layer, and the method for a message type.
#[derive(Clone)]
struct CheckedMethod {
    channel: Channel,
    method: &'static Method,
}

/// Adds the layers for message types. A layer whose schema is refused is split, until the broken types have their own.
fn add_layers<'a>(
    descriptors: &Bytes,
    types: &[&'a str],
    layers: &mut HashMap<&'a str, Result<CheckedMethod, String>>,
) {
    let methods = types.iter().enumerate().map(|(at, name)| MethodDescriptorProto {
        name: Some(format!("Case{at}")),
        input_type: Some(format!(".{name}")),
        output_type: Some(format!(".{name}")),
        ..MethodDescriptorProto::default()
    });
    let (package, name) = SERVICE.split_once('.').expect("it has a package");
    let service =
        ServiceDescriptorProto { name: Some(name.to_owned()), method: methods.collect(), ..Default::default() };
    let known = FileDescriptorSet::decode(&descriptors[..]).unwrap_or_default();
    let file = FileDescriptorProto {
        name: Some("conformance_cases.proto".to_owned()),
        package: Some(package.to_owned()),
        dependency: known.file.iter().map(|file| file.name().to_owned()).collect(),
        service: vec![service],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    // Sets are concatenated as bytes.
    let set = [&descriptors[..], &FileDescriptorSet { file: vec![file] }.encode_to_vec()].concat();
    match (Validation::new([&set[..]]), types) {
        (Ok(validation), _) => {
            let channel = Channel::over_caller(ValidAnswers).layer(validation);
            for (at, name) in types.iter().enumerate() {
                // Methods are static. The program ends after its cases.
                let method = Box::leak(Box::new(Method::unary(SERVICE, format!("Case{at}").leak(), 10)));
                layers.insert(name, Ok(CheckedMethod { channel: channel.clone(), method }));
            }
        }
        (Err(error), [name]) => {
            layers.insert(name, Err(error.to_string()));
        }
        (Err(_), types) => {
            let (one, other) = types.split_at(types.len() / 2);
            add_layers(descriptors, one, layers);
            add_layers(descriptors, other, layers);
        }
    }
}

/// Answers each call.
struct ValidAnswers;

impl Caller for ValidAnswers {
    fn format(&self) -> Format {
        Format::Proto
    }

    fn call(&self, _: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        async { Ok(Answer::new(Body::from(Bytes::new()))) }.boxed()
    }
}

impl CheckedMethod {
    async fn check(&self, case: &Any) -> Outcome {
        let body = Body::from(Bytes::from(case.value.clone()));
        let Err(status) = self.channel.call(Call::new(self.method, Format::Proto, Head::default(), body)).await else {
            return Outcome::Valid(true);
        };
        let violations =
            status.error_details().into_iter().find(|any| any.type_url.ends_with("/buf.validate.Violations"));
        match violations.map(|any| Violations::decode(&any.value[..])) {
            Some(Ok(violations)) => Outcome::Invalid(violations),
            _ if status.code() == Code::Internal => Outcome::BrokenRule(status.message().to_owned()),
            _ => Outcome::Unexpected(status.to_string()),
        }
    }
}
