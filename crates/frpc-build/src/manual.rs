//! Services without a proto file: described in `build.rs`, with messages of any type and a user-defined codec.
//!
//! The names are those of `tonic_build::manual`. A type with an implementation of [`Codec`] encodes and decodes the
//! messages. See its documentation for the format on each wire.
//!
//! ```no_run
//! // build.rs
//! use frpc_build::manual::{Builder, Method, Service};
//!
//! fn main() -> Result<(), frpc_build::Error> {
//!     let say_hello = Method::builder()
//!         .name("say_hello")
//!         .route_name("SayHello")
//!         .input_type("crate::common::HelloRequest")
//!         .output_type("crate::common::HelloResponse")
//!         .codec_path("crate::common::JsonCodec")
//!         .build();
//!     let greeter = Service::builder().name("Greeter").package("json.helloworld").method(say_hello).build();
//!     Builder::new().compile(&[greeter])
//! }
//! ```
//!
//! Each service gets a file of its own with the same items as a service from a proto file: the trait, the server and
//! the client. The crate includes the file in a module: `frpc::include_proto!("json.helloworld.Greeter")`.
//!
//! [`Codec`]: https://docs.rs/frisbee-rpc/latest/frpc/codec/trait.Codec.html

use std::{env, path::PathBuf};

use frpc_schema::{
    Schema, SchemaOptions,
    location::{METHODS_OF_SERVICE, SERVICES_OF_FILE, joined},
};
use prost_types::{
    DescriptorProto, FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, MethodOptions,
    ServiceDescriptorProto, SourceCodeInfo, source_code_info::Location,
};

use crate::{
    conflicts,
    emit::{self, CodecPath, EmitSettings},
    error::Error,
    files,
    naming::{self, TypePaths},
    sources::IncludeDirs,
};

/// A service without a proto file. Created with [`builder`](Self::builder).
#[derive(Clone, Debug, Default)]
pub struct Service {
    name: String,
    package: String,
    comment: String,
    methods: Vec<Method>,
}

/// A builder for a [`Service`].
#[derive(Clone, Debug, Default)]
pub struct ServiceBuilder(Service);

/// A method of a [`Service`]. Created with [`builder`](Self::builder).
#[derive(Clone, Debug, Default)]
pub struct Method {
    name: Option<String>,
    route_name: String,
    input_type: String,
    output_type: String,
    codec_path: String,
    comment: String,
    client_streaming: bool,
    server_streaming: bool,
    deprecated: bool,
}

/// A builder for a [`Method`].
#[derive(Clone, Debug, Default)]
pub struct MethodBuilder(Method);

/// Options of the code generator for services without proto files.
#[derive(Clone, Debug)]
pub struct Builder {
    has_server: bool,
    has_client: bool,
    out_dir: Option<PathBuf>,
}

impl Service {
    /// Returns a builder for a service.
    pub fn builder() -> ServiceBuilder {
        ServiceBuilder::default()
    }
}

impl ServiceBuilder {
    /// Sets the name of the service, such as `Greeter`. It names the trait and is part of the path of calls.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    /// Sets the package, such as `json.helloworld`. It comes before the name in the path of calls. Default: none.
    pub fn package(mut self, package: impl Into<String>) -> Self {
        self.0.package = package.into();
        self
    }

    /// Adds a line to the documentation of the trait and the client.
    pub fn comment(mut self, line: impl AsRef<str>) -> Self {
        self.0.comment += &format!(" {}\n", line.as_ref());
        self
    }

    /// Adds a method. Plain frisbee peers identify methods by their position, so add new methods at the end.
    pub fn method(mut self, method: Method) -> Self {
        self.0.methods.push(method);
        self
    }

    /// Returns the service. [`Builder::compile`] validates it.
    pub fn build(self) -> Service {
        self.0
    }
}

impl Method {
    /// Returns a builder for a method. By default the method is unary.
    pub fn builder() -> MethodBuilder {
        MethodBuilder::default()
    }
}

impl MethodBuilder {
    /// Sets the name of the Rust function. It must be the [`route_name`](Self::route_name) in snake case. Default: that
    /// name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets the name of the method in the path of calls, such as `SayHello`.
    pub fn route_name(mut self, name: impl Into<String>) -> Self {
        self.0.route_name = name.into();
        self
    }

    /// Sets the request type: a path starting with `crate::` or `::`, or a type of the prelude.
    pub fn input_type(mut self, path: impl Into<String>) -> Self {
        self.0.input_type = path.into();
        self
    }

    /// Sets the response type. The rules of [`input_type`](Self::input_type) apply.
    pub fn output_type(mut self, path: impl Into<String>) -> Self {
        self.0.output_type = path.into();
        self
    }

    /// Sets the codec: the path of a type with an implementation of `frpc::codec::Codec` for both message types.
    pub fn codec_path(mut self, path: impl Into<String>) -> Self {
        self.0.codec_path = path.into();
        self
    }

    /// Adds a line to the documentation of the function in the trait and the client.
    pub fn comment(mut self, line: impl AsRef<str>) -> Self {
        self.0.comment += &format!(" {}\n", line.as_ref());
        self
    }

    /// Makes clients send a stream of requests.
    pub fn client_streaming(mut self) -> Self {
        self.0.client_streaming = true;
        self
    }

    /// Makes the server send a stream of responses.
    pub fn server_streaming(mut self) -> Self {
        self.0.server_streaming = true;
        self
    }

    /// Marks the method as deprecated.
    pub fn deprecated(mut self) -> Self {
        self.0.deprecated = true;
        self
    }

    /// Returns the method. [`Builder::compile`] validates it.
    pub fn build(self) -> Method {
        self.0
    }
}

impl Builder {
    /// Creates a builder with the default options.
    pub fn new() -> Self {
        Self { has_server: true, has_client: true, out_dir: None }
    }

    /// Enables or disables the trait and the server. Default: enabled.
    pub fn build_server(mut self, enable: bool) -> Self {
        self.has_server = enable;
        self
    }

    /// Enables or disables the client. Default: enabled.
    pub fn build_client(mut self, enable: bool) -> Self {
        self.has_client = enable;
        self
    }

    /// Sets the output directory. Default: `OUT_DIR`, set by cargo.
    pub fn out_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(dir.into());
        self
    }

    /// Generates the code of the services. The service `Greeter` in package `json.helloworld` goes into
    /// `json.helloworld.Greeter.rs`.
    ///
    /// # Errors
    ///
    /// Fails if a name or type is missing or invalid in Rust, if two methods have the same name, or if a file cannot be
    /// written.
    pub fn compile(self, services: &[Service]) -> Result<(), Error> {
        let dir = self.out_dir.clone().or_else(|| env::var_os("OUT_DIR").map(PathBuf::from));
        let dir = dir.ok_or_else(|| Error::other(files::NO_DIR))?;
        for service in services {
            let code = self.code(service)?;
            files::write(&dir.join(naming::file(&service.full_name())), format!("{}\n{code}", files::HEAD).as_bytes())?;
        }
        Ok(())
    }

    /// Returns the code of a service, generated like for a proto file with all messages declared in another crate.
    fn code(&self, service: &Service) -> Result<String, Error> {
        let mut messages = MessagePlaceholders { service, names: Vec::new() };
        let mut codecs = Vec::new();
        let methods = service.methods.iter().map(|method| {
            let path = format!("{}/{}", service.full_name(), method.route_name);
            method.check_name(&path)?;
            codecs
                .push(CodecPath::new(&format!(".{}.{}", service.full_name(), method.route_name), &method.codec_path)?);
            Ok(MethodDescriptorProto {
                name: Some(method.route_name.clone()),
                input_type: Some(messages.add(&method.input_type, &path)?),
                output_type: Some(messages.add(&method.output_type, &path)?),
                client_streaming: Some(method.client_streaming),
                server_streaming: Some(method.server_streaming),
                options: Some(MethodOptions { deprecated: Some(method.deprecated), ..MethodOptions::default() }),
            })
        });
        let declared = ServiceDescriptorProto {
            name: Some(service.name.clone()),
            method: methods.collect::<Result<_, Error>>()?,
            options: None,
        };
        let mut names = TypePaths::new();
        let message_type = messages.names.iter().map(|(path, name)| {
            names.add(&service.in_package(name), path);
            DescriptorProto { name: Some(name.clone()), ..DescriptorProto::default() }
        });
        let file = FileDescriptorProto {
            name: Some(format!("{} in the build script", service.full_name())),
            package: Some(service.package.clone()).filter(|package| !package.is_empty()),
            message_type: message_type.collect(),
            service: vec![declared],
            source_code_info: Some(SourceCodeInfo { location: service.comments() }),
            syntax: Some("proto3".to_owned()),
            ..FileDescriptorProto::default()
        };
        let schema = Schema::read(&FileDescriptorSet { file: vec![file] }, &SchemaOptions::default())
            .map_err(|error| Error::schema(&error.diagnostics, &IncludeDirs::default()))?;
        let emitter = EmitSettings {
            names,
            has_server: self.has_server,
            has_client: self.has_client,
            has_mocks: false,
            has_json: false,
            has_required_fields: false,
            has_field_masks: false,
            has_pages: false,
            topics: Vec::new(),
            codecs,
            attributes: Vec::new(),
            uncommented: Vec::new(),
        };
        let mut mistakes = conflicts::unnamed(&schema);
        mistakes.extend(conflicts::find(&schema, &emitter, false));
        if !mistakes.is_empty() {
            return Err(Error::schema(&mistakes, &IncludeDirs::default()));
        }
        let mut code = String::new();
        for package in &schema.packages {
            code += &emit::package(&emitter, package, &schema, "").map_err(Error::other)?;
        }
        Ok(code)
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Service {
    fn full_name(&self) -> String {
        self.in_package(&self.name)
    }

    /// Returns the comments with the descriptor paths of their declarations.
    fn comments(&self) -> Vec<Location> {
        let service = vec![SERVICES_OF_FILE, 0];
        let methods = (0..).zip(&self.methods).map(|(index, method)| {
            let path = joined(&service, &[METHODS_OF_SERVICE, index]);
            (path, &method.comment)
        });
        let all = [(service.clone(), &self.comment)].into_iter().chain(methods);
        all.filter(|(_, comment)| !comment.is_empty())
            .map(|(path, comment)| Location { path, leading_comments: Some(comment.clone()), ..Location::default() })
            .collect()
    }

    fn in_package(&self, name: &str) -> String {
        if self.package.is_empty() { name.to_owned() } else { format!("{}.{name}", self.package) }
    }
}

impl Method {
    /// Checks the name of the Rust function against the generated one.
    fn check_name(&self, path: &str) -> Result<(), Error> {
        let own = naming::method(&self.route_name);
        match &self.name {
            Some(name) if *name != own => Err(Error::other(format_args!(
                "the Rust function of {path} is named '{own}', not '{name}': set that name or none"
            ))),
            _ => Ok(()),
        }
    }
}

/// Rust types of the messages of a service, each with a placeholder message name.
struct MessagePlaceholders<'a> {
    service: &'a Service,
    names: Vec<(String, String)>,
}

impl MessagePlaceholders<'_> {
    /// Returns the placeholder message name for a type of a method. Adds it if the type is new.
    fn add(&mut self, path: &str, method: &str) -> Result<String, Error> {
        if syn::parse_str::<syn::Type>(path).is_err() {
            return Err(Error::other(format_args!(
                "'{path}' is not a Rust type: set one for each message of {method}"
            )));
        }
        let known = self.names.iter().find(|(known, _)| known == path).map(|(_, name)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = self.free_name(path);
            self.names.push((path.to_owned(), name.clone()));
            name
        });
        Ok(format!(".{}", self.service.in_package(&name)))
    }

    /// Returns an unused message name for a type: the name of the type itself, if possible.
    fn free_name(&self, path: &str) -> String {
        let own = path.split('<').next().unwrap_or_default();
        let own = own.rsplit("::").next().unwrap_or_default();
        let mut name: String = own.chars().filter(char::is_ascii_alphanumeric).collect();
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            name = format!("Message{name}");
        }
        while name == self.service.name || self.names.iter().any(|(_, taken)| *taken == name) {
            name.push('_');
        }
        name
    }
}
