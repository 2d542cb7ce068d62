//! The options, and the steps from proto files to generated code.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use frpc_rest::{OpenApiInfo, RestApi};
use frpc_schema::{Diagnostic, PackageSchema, Schema, SchemaOptions, decode_descriptors};
use prost_build::Module;
use prost_types::{EnumDescriptorProto, EnumValueDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use protox::prost::Message as _;
use syn::parse::Parser as _;

use crate::{
    conflicts, descriptors, editions,
    emit::{self, CodecPath, EmitSettings, MessageTopic, ServiceAttribute, ServiceItem},
    error::Error,
    files::{self, GeneratedFiles},
    lock::{LockContent, LockFile},
    naming::{self, TypePaths},
    prost_input, protoc_rules, required,
    resolver::{ParsedFiles, ProtoResolver},
    sources::IncludeDirs,
};

/// Compiles a proto file into `OUT_DIR`. The directory of the file is the include directory for its imports.
///
/// Use [`configure`] for options, several files, or other include directories.
pub fn compile_protos(proto: impl AsRef<Path>) -> Result<(), Error> {
    let proto = proto.as_ref();
    let include = proto.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    configure().compile_protos(&[proto], &[include])
}

/// Returns the default options for code generation.
pub fn configure() -> Builder {
    let mut config = prost_build::Config::new();
    // frisbee-rpc-build maps the well-known types by name. prost would also map all packages below `google.protobuf`.
    config.prost_path("::frpc::prost").compile_well_known_types();
    Builder {
        config,
        has_server: true,
        has_client: true,
        has_mocks: false,
        has_json: false,
        has_required_fields: false,
        has_field_masks: false,
        has_pages: false,
        has_rest: false,
        open_api: None,
        open_api_info: OpenApiInfo::new("", env::var("CARGO_PKG_VERSION").unwrap_or_default()),
        has_well_known_types: false,
        externs: Vec::new(),
        uncommented: Vec::new(),
        attributes: Vec::new(),
        bytes: Vec::new(),
        btree_maps: Vec::new(),
        schema: SchemaOptions::default(),
        out_dir: None,
        include_file: PathBuf::from(files::TREE),
        file_descriptor_set_path: None,
        lock: None,
        has_plain_peers: true,
        topics: Vec::new(),
        codec_path: None,
        emits_rerun_if_changed: env::var_os("OUT_DIR").is_some(),
    }
}

/// Options for code generation.
///
/// Some options take a proto path: `.` matches everything, `.shop` a package, `.shop.Order.id` a field, and `Order.id`
/// all fields of that name.
#[derive(Debug)]
pub struct Builder {
    config: prost_build::Config,
    has_server: bool,
    has_client: bool,
    has_mocks: bool,
    has_json: bool,
    has_required_fields: bool,
    has_field_masks: bool,
    has_pages: bool,
    has_rest: bool,
    open_api: Option<PathBuf>,
    open_api_info: OpenApiInfo,
    has_well_known_types: bool,
    externs: Vec<(String, String)>,
    uncommented: Vec<String>,
    attributes: Vec<ServiceAttribute>,
    /// All paths so far: each call to prost replaces the earlier ones.
    bytes: Vec<String>,
    btree_maps: Vec<String>,
    schema: SchemaOptions,
    out_dir: Option<PathBuf>,
    include_file: PathBuf,
    file_descriptor_set_path: Option<PathBuf>,
    lock: Option<PathBuf>,
    has_plain_peers: bool,
    topics: Vec<MessageTopic>,
    codec_path: Option<String>,
    emits_rerun_if_changed: bool,
}

impl Builder {
    /// Sets whether to generate a trait and a server for services. Default: yes.
    pub fn build_server(mut self, enable: bool) -> Self {
        self.has_server = enable;
        self
    }

    /// Sets whether to generate a client for services. Default: yes.
    pub fn build_client(mut self, enable: bool) -> Self {
        self.has_client = enable;
        self
    }

    /// Sets whether to generate a mock for each service with a server, such as `greeter_mock::MockGreeter`. Default: no.
    ///
    /// Mocks implement the trait of the service by expectations; see `frpc::testing`. They are part of all builds, so that
    /// integration tests and other crates can use them. `.mock_mod_attribute(".", "#[cfg(test)]")` keeps them in the tests
    /// of this crate.
    pub fn mocks(mut self, enable: bool) -> Self {
        self.has_mocks = enable;
        self
    }

    /// Sets whether messages support proto3 JSON. Default: no.
    ///
    /// Connect, gRPC-Web and Twirp can carry JSON, and `frpc::codec::json` writes and reads it. It does not need serde.
    ///
    /// All types contained in a message need JSON as well, so generate the target of an
    /// [`extern_path`](Self::extern_path) with the same setting. A `google.protobuf.Any` can hold the well-known types,
    /// the messages of its own package, and the types contained in those messages. For messages of other packages, pass
    /// the result of their function `json_types` to `MessageSettings::any_types` of the server or channel.
    pub fn json(mut self, enable: bool) -> Self {
        self.has_json = enable;
        self
    }

    /// Sets whether fields marked as required have the type `T` instead of `Option<T>`. Default: no.
    ///
    /// A mark is `(buf.validate.field).required = true`, `(google.api.field_behavior) = REQUIRED`, or `required` in
    /// proto2. It counts for fields that would be an `Option`: those with a message, and `optional` ones. A decoded
    /// message without such a field is an error in every format, which names the field: `Order.customer.address is
    /// required`. Servers respond with the code `InvalidArgument`.
    ///
    /// The bytes on the wire are the same as without this option, so peers may differ in it. `prost::Message::decode` does
    /// not check required fields, only frpc does. Generate the target of an [`extern_path`](Self::extern_path) with the
    /// same setting.
    ///
    /// The marks are in options, and the types of prost drop them. Use [`compile_protos`](Self::compile_protos) or
    /// [`compile_descriptor_set`](Self::compile_descriptor_set), but not [`compile_fds`](Self::compile_fds).
    pub fn required_fields(mut self, enable: bool) -> Self {
        self.has_required_fields = enable;
        self
    }

    /// Sets whether messages support [field masks]: the projection to a mask, and updates with a mask. Default: no.
    ///
    /// For each package, a module `paths` contains the paths of all fields as constants, such as
    /// `paths::order::LINE_ITEM` for `Order.line_item`. Generate the target of an [`extern_path`](Self::extern_path)
    /// with the same setting.
    ///
    /// [field masks]: https://docs.rs/frisbee-rpc/latest/frpc/field_mask/index.html
    pub fn field_masks(mut self, enable: bool) -> Self {
        self.has_field_masks = enable;
        self
    }

    /// Sets whether lists in pages can be read as [streams]. Default: no.
    ///
    /// It applies to unary methods as in AIP-158: the request has `page_size` and `page_token`, and the response has
    /// `next_page_token` and a list of messages or strings. That is the field with number 1, or the only list.
    ///
    /// [streams]: https://docs.rs/frisbee-rpc/latest/frpc/pages/index.html
    pub fn pages(mut self, enable: bool) -> Self {
        self.has_pages = enable;
        self
    }

    /// Sets whether the services have a REST API, given by the option `google.api.http` of their methods. Default: no.
    ///
    /// It enables [`json`](Self::json), and the build fails if an annotation is invalid or two methods have the same HTTP
    /// method and path. `frpc_http::Http::rest` serves the API. `google/api/annotations.proto` is known without
    /// an include directory.
    pub fn rest(mut self, enable: bool) -> Self {
        self.has_rest = enable;
        self
    }

    /// Writes a description of the REST API, an OpenAPI 3.1 document in JSON: `.openapi("openapi.json")`. Default: none.
    ///
    /// The path is relative to the directory for generated files, so `frpc_http::OpenApiPage` can show the document with
    /// `include_str!(concat!(env!("OUT_DIR"), "/openapi.json"))`. The comments of the proto files become descriptions.
    pub fn openapi(mut self, path: impl Into<PathBuf>) -> Self {
        self.open_api = Some(path.into());
        self
    }

    /// Sets the title and the version in the [OpenAPI document](Self::openapi). Default: the names of the services, and
    /// the version of the crate.
    pub fn openapi_info(mut self, title: impl Into<String>, version: impl Into<String>) -> Self {
        self.open_api_info = OpenApiInfo::new(title, version);
        self
    }

    /// Sets the operation number of the first method of a file. The other methods follow in order. Default: 10, the
    /// lowest.
    ///
    /// Each file has its own numbers. If plain peers, such as Go clients, call methods of two files on one connection,
    /// one of the files needs other numbers: `.first_operation("shop/order.proto", 200)`, with its path in the include
    /// directory. Generate both sides with the same setting. Peers generated by frpc-go always start at 10, so change
    /// the numbers of a file that Go does not use.
    pub fn first_operation(mut self, file: impl Into<String>, number: u16) -> Self {
        self.schema.first_operations.insert(file.into(), number);
        self
    }

    /// Generates a constant for the topic of a message: `.topic("shop.OrderCreated", "orders.*.created")` generates
    /// `shop::topics::ORDER_CREATED`.
    ///
    /// A message has at most one such topic; use [`MessageTopic::new`] for others. The crate needs `frisbee-pubsub` with its
    /// feature `prost`. The pattern is checked when it is used.
    ///
    /// [`MessageTopic::new`]: https://docs.rs/frisbee-pubsub/latest/frisbee_pubsub/struct.Topic.html
    pub fn topic(mut self, message: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.topics.push(MessageTopic { message: message.into(), pattern: pattern.into() });
        self
    }

    /// Sets a user-defined codec for the messages of all services, instead of protobuf and the formats of frpc:
    /// `.codec_path("crate::common::JsonCodec")`. The type implements [`Codec`] for all messages of the methods. A
    /// codec based on serde can rely on traits derived by a [`type_attribute`](Self::type_attribute). Default: none.
    ///
    /// The messages are still prost structs. Use [`manual`](crate::manual) for services without a proto file and with
    /// messages of any type.
    ///
    /// [`Codec`]: https://docs.rs/frisbee-rpc/latest/frpc/codec/trait.Codec.html
    pub fn codec_path(mut self, path: impl Into<String>) -> Self {
        self.codec_path = Some(path.into());
        self
    }

    /// Sets the directory for generated files. Default: `OUT_DIR`, as set by cargo.
    ///
    /// Choose a source directory to make the generated files part of the repository. With
    /// `.out_dir("src/generated").include_file("mod.rs")`, the crate needs only `mod generated;`.
    pub fn out_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(dir.into());
        self
    }

    /// Sets the name of the file with a module tree that includes all other files. Default: `_includes.rs`, the file
    /// that `frpc::include_protos!()` includes from `OUT_DIR`.
    pub fn include_file(mut self, name: impl Into<PathBuf>) -> Self {
        self.include_file = name.into();
        self
    }

    /// Also writes the descriptors of all files and their imports to this path.
    pub fn file_descriptor_set_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.file_descriptor_set_path = Some(path.into());
        self
    }

    /// Guards the layout of all types that methods send with a lock file, such as `proto/frpc.lock`. Default: no file.
    ///
    /// The first build writes the file. Commit it and review its changes. From then on, a build fails if a change of
    /// the proto files breaks peers. The error names the place of the change, the peers it breaks, and the lines to
    /// delete to accept it. All other changes are written into the file.
    ///
    /// Plain peers, such as those in Go, identify methods, fields and values by position. Binaries built before by
    /// frisbee-rpc-build identify a method by its path. For a message with a changed layout, they and new binaries use
    /// protobuf, which identifies fields and values by number.
    ///
    /// | change | plain peers | binaries built before |
    /// |---|---|---|
    /// | method added after all others of its file | fine | fine |
    /// | method inserted or moved | broken | fine |
    /// | method, service or package renamed | fine | broken |
    /// | method removed, or with other streams | broken | broken |
    /// | field or member of a oneof added or removed | broken | fine |
    /// | fields in another order | broken | fine |
    /// | field with another number | fine | broken |
    /// | fields moved together into a oneof, or out of it | fine | broken |
    /// | `int32` changed to `sint32`: same encoding in polyglot | fine | broken |
    /// | `string` changed to `bytes`: same encoding in protobuf | broken | fine |
    /// | `int32` changed to `int64`: binaries built before refuse the wider type | broken | broken |
    /// | field with any other type | broken | broken |
    /// | value added after all others of its enum | fine | fine |
    /// | value inserted, moved or removed | broken | fine |
    /// | value with another number | fine | broken |
    /// | message, field, value or file renamed | fine | fine |
    /// | comments and options | fine | fine |
    ///
    /// Names of fields and values are not guarded. Only [JSON](Self::json) contains them, so a rename breaks callers
    /// with JSON.
    ///
    /// The file describes the present, not the past: reserve the numbers of removed fields, as in protobuf.
    ///
    /// Each call of `compile_protos`, or of a similar function, needs its own file. A build writes the file only if its
    /// content changes. In CI, `git status --porcelain proto/frpc.lock` after the build prints nothing if the committed
    /// file is up to date. Cargo runs a build script once more after it has written the file.
    pub fn lock(mut self, path: impl Into<PathBuf>) -> Self {
        self.lock = Some(path.into());
        self
    }

    /// Sets whether the [lock file](Self::lock) guards plain peers, such as peers generated by frpc-go. Default: yes.
    ///
    /// Without plain peers, only changes that break binaries built before fail the build: fields can be added and
    /// methods moved.
    pub fn lock_plain_peers(mut self, enable: bool) -> Self {
        self.has_plain_peers = enable;
        self
    }

    /// Sets whether cargo watches the proto files and the lock file. Default: yes in a build script.
    pub fn emit_rerun_if_changed(mut self, enable: bool) -> Self {
        self.emits_rerun_if_changed = enable;
        self
    }

    /// Uses a package or type generated elsewhere by frisbee-rpc-build: `.extern_path(".shop", "::shop_protos::shop")`.
    /// No code is generated for it here, including its services.
    pub fn extern_path(mut self, proto_path: impl Into<String>, rust_path: impl Into<String>) -> Self {
        let (proto_path, rust_path) = (proto_path.into(), rust_path.into());
        self.config.extern_path(&proto_path, &rust_path);
        self.externs.push((proto_path, rust_path));
        self
    }

    /// Sets whether types of `google.protobuf` are generated like all others. Default: no, the types of prost are used.
    pub fn compile_well_known_types(mut self, enable: bool) -> Self {
        self.has_well_known_types = enable;
        self
    }

    /// Generates these `bytes` fields as `Bytes`: slices of the received packet instead of copies.
    pub fn bytes(mut self, path: impl AsRef<str>) -> Self {
        self.bytes.push(path.as_ref().to_owned());
        self.config.bytes(&self.bytes);
        self
    }

    /// Generates these maps as `BTreeMap`.
    pub fn btree_map(mut self, path: impl AsRef<str>) -> Self {
        self.btree_maps.push(path.as_ref().to_owned());
        self.config.btree_map(&self.btree_maps);
        self
    }

    /// Boxes these message fields. Recursive fields are always boxed.
    pub fn boxed(mut self, path: impl AsRef<str>) -> Self {
        self.config.boxed(path);
        self
    }

    /// Adds an attribute to these messages, enums and oneofs.
    pub fn type_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.type_attribute(path, attribute);
        self
    }

    /// Adds an attribute to these messages.
    pub fn message_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.message_attribute(path, attribute);
        self
    }

    /// Adds an attribute to these enums and oneofs.
    pub fn enum_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.enum_attribute(path, attribute);
        self
    }

    /// Adds an attribute to these fields.
    pub fn field_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.field_attribute(path, attribute);
        self
    }

    /// Adds an attribute to the clients of these services: `.client_attribute("shop.Orders", "#[derive(Hash)]")`.
    pub fn client_attribute(self, path: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.service_attribute(ServiceItem::Client, path.into(), attribute.into())
    }

    /// Adds an attribute to the client modules of these services: `.client_mod_attribute(".", "#[cfg(feature =
    /// \"client\")]")`.
    pub fn client_mod_attribute(self, path: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.service_attribute(ServiceItem::ClientModule, path.into(), attribute.into())
    }

    /// Adds an attribute to the servers of these services, such as `OrdersServer`.
    pub fn server_attribute(self, path: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.service_attribute(ServiceItem::Server, path.into(), attribute.into())
    }

    /// Adds an attribute to the server modules of these services. The traits are in these modules, too.
    pub fn server_mod_attribute(self, path: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.service_attribute(ServiceItem::ServerModule, path.into(), attribute.into())
    }

    /// Adds an attribute to the mock modules of these services, such as `#[cfg(test)]`.
    pub fn mock_mod_attribute(self, path: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.service_attribute(ServiceItem::MockModule, path.into(), attribute.into())
    }

    /// Adds an attribute to the traits of these services.
    pub fn trait_attribute(self, path: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.service_attribute(ServiceItem::Trait, path.into(), attribute.into())
    }

    fn service_attribute(mut self, on: ServiceItem, path: String, attribute: String) -> Self {
        self.attributes.push(ServiceAttribute { on, path, attribute });
        self
    }

    /// Omits the comments of these messages, fields, services and methods.
    pub fn disable_comments(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.config.disable_comments([&path]);
        self.uncommented.push(path);
        self
    }

    /// Changes any other option of prost. Options with a method in this builder must be set here, because the codec and
    /// the services depend on them.
    pub fn prost_config(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Compiles proto files. An include directory must contain each of them, and each import.
    pub fn compile_protos(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<(), Error> {
        let CompiledProtos { set, encoded, sources } = compile(protos, includes)?;
        if self.emits_rerun_if_changed {
            let paths = set.file.iter().map(|file| sources.path(file.name()));
            paths.filter(|path| path.is_file()).for_each(|path| rerun_if_changed(&path));
        }
        self.generate(&set, &encoded, &sources)
    }

    /// Checks proto files against the [lock file](Self::lock) and updates it like a build, without generating code.
    /// Returns `true` if the file changed.
    ///
    /// ```no_run
    /// let builder = frpc_build::configure().emit_rerun_if_changed(false).lock("proto/frpc.lock");
    /// if builder.update_lock(&["proto/echo.proto"], &["proto"])? {
    ///     println!("the lock file was written");
    /// }
    /// # Ok::<(), frpc_build::Error>(())
    /// ```
    pub fn update_lock(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<bool, Error> {
        let checked = self.check_lock(protos, includes)?;
        let is_stale = checked.is_stale()?;
        checked.write()?;
        Ok(is_stale)
    }

    /// Checks proto files against the [lock file](Self::lock) without writing it. Returns `true` if a build would
    /// change it.
    pub fn lock_is_stale(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<bool, Error> {
        self.check_lock(protos, includes)?.is_stale()
    }

    /// Returns the [OpenAPI document](Self::openapi) of proto files, without generating code.
    pub fn openapi_document(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<String, Error> {
        let CompiledProtos { encoded, sources, .. } = compile(protos, includes)?;
        let api = read_api(&encoded, &sources)?;
        Ok(api.open_api(&self.open_api_info))
    }

    /// Returns the encoded descriptors of proto files and their imports, with source information and all options.
    ///
    /// Files of an edition have their edition and features. [`frpc_schema::decode_descriptors`] reads them.
    pub fn descriptor_set(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<Vec<u8>, Error> {
        compile(protos, includes).map(|compiled| compiled.encoded)
    }

    fn check_lock(mut self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<LockContent, Error> {
        let path = self.lock.take().ok_or_else(|| Error::other("no lock file is set: call `lock` first"))?;
        let CompiledProtos { set, sources, .. } = compile(protos, includes)?;
        let schema = Schema::read(&set, &self.schema).map_err(|error| Error::schema(&error.diagnostics, &sources))?;
        let emitter = self.emitter()?;
        let is_here = |service: &str| emitter.names.external(service).is_none();
        LockFile { path, has_plain_peers: self.has_plain_peers }.check(&schema, &set, is_here, &sources)
    }

    /// Compiles a file of descriptors, as written by `buf build -o` or by
    /// `protoc --include_imports --include_source_info -o`.
    ///
    /// The files may be of edition 2023 or 2024: the features of each declaration are resolved.
    pub fn compile_descriptor_set(self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|error| Error::io("read", path, error))?;
        if self.emits_rerun_if_changed {
            rerun_if_changed(path);
        }
        let sources = IncludeDirs::default();
        let set = decode_descriptors(&bytes).map_err(|error| {
            let text = Error::schema(&error.diagnostics, &sources);
            Error::other(format_args!("cannot read {}: {text}", path.display()))
        })?;
        self.generate(&set, &bytes, &sources)
    }

    /// Compiles descriptors. The types of prost have no editions, so files with an edition are refused: use
    /// [`compile_descriptor_set`](Self::compile_descriptor_set) for them.
    ///
    /// These types have no options of extensions, so [`rest`](Self::rest) finds no annotations.
    pub fn compile_fds(self, set: FileDescriptorSet) -> Result<(), Error> {
        if self.has_required_fields {
            return Err(Error::other(
                "the types of prost drop the options that mark required fields: use `compile_descriptor_set`",
            ));
        }
        self.generate(&set, &set.encode_to_vec(), &IncludeDirs::default())
    }

    /// Generates the code for descriptors. `encoded` holds their bytes, with the options that the types of prost lack.
    fn generate(mut self, set: &FileDescriptorSet, encoded: &[u8], sources: &IncludeDirs) -> Result<(), Error> {
        if let Some(path) = &self.file_descriptor_set_path {
            files::write(path, encoded)?;
        }
        let emitter = self.emitter()?;
        if self.has_required_fields {
            self.schema.required_fields = required::marked(encoded).map_err(Error::other)?;
        }
        let has_api = self.has_rest || self.open_api.is_some();
        let api = has_api.then(|| read_api(encoded, sources)).transpose()?;
        let schema = Schema::read(set, &self.schema).map_err(|error| Error::schema(&error.diagnostics, sources))?;
        let unnamed = conflicts::unnamed(&schema);
        if !unnamed.is_empty() {
            return Err(Error::schema(&unnamed, sources));
        }
        emit::check_topics(&schema, &self.topics).map_err(Error::other)?;
        emit::check_masks(&emitter, &schema).map_err(|diagnostic| Error::schema(&[diagnostic], sources))?;
        self.check_include_file(&schema).map_err(|diagnostic| Error::schema(&[diagnostic], sources))?;
        self.config.format(false); // Formatted later, together with the other code.
        let conflicts = conflicts::find(&schema, &emitter, self.keeps_enum_prefix());
        if !conflicts.is_empty() {
            return Err(Error::schema(&conflicts, sources));
        }

        let lock = self.lock.take().map(|path| LockFile { path, has_plain_peers: self.has_plain_peers });
        if let Some(lock) = lock.as_ref().filter(|_| self.emits_rerun_if_changed) {
            rerun_if_changed(&lock.path);
        }
        let is_here = |service: &str| emitter.names.external(service).is_none();
        let lock = lock.map(|lock| lock.check(&schema, set, is_here, sources)).transpose()?;

        for path in prost_input::recursive_groups(set, &schema) {
            self.config.boxed(path);
        }
        let (input, comments) = prost_input::of(set, &schema);
        let modules = input.into_iter().map(|file| (Module::from_protobuf_package_name(file.package()), file));
        let mut structs = self.config.generate(modules.collect()).map_err(Error::other)?;
        let dir = self.target_dir()?;
        let mut files = GeneratedFiles::default();
        for package in &schema.packages {
            let structs = structs.remove(&Module::from_protobuf_package_name(&package.name)).unwrap_or_default();
            let code = emit::package(&emitter, package, &schema, &comments.fill_in(&structs)).map_err(|error| {
                let name = &package.name;
                Error::other(format_args!(
                    "the code for package '{name}' does not parse ({error}): check the attributes added to it"
                ))
            })?;
            if !code.is_empty() || !emitter.is_extern(package) {
                self.check_descriptor_set_path(&dir.join(naming::descriptors_file(&package.name)), &package.name)?;
                files.add(&package.name, &code, descriptors::of(&package.name, set, encoded));
            }
        }
        files.write_to(&dir, &self.include_file)?;
        if let (Some(path), Some(api)) = (&self.open_api, &api) {
            files::write(&dir.join(path), api.open_api(&self.open_api_info).as_bytes())?;
        }
        lock.map_or(Ok(()), |lock| lock.write())
    }

    fn emitter(&mut self) -> Result<EmitSettings, Error> {
        let mut names = TypePaths::new();
        for (proto_path, rust_path) in &self.externs {
            if syn::parse_str::<syn::Type>(rust_path).is_err() {
                return Err(Error::other(format_args!(
                    "extern path '{rust_path}' for '{proto_path}' is not a path in Rust"
                )));
            }
            names.add(proto_path, rust_path);
        }
        if !self.has_well_known_types {
            for (proto_path, rust_path) in names.add_well_known() {
                self.config.extern_path(proto_path, rust_path);
            }
        }
        let codecs = self.codec_path.iter().map(|path| CodecPath::new(".", path)).collect::<Result<_, _>>()?;
        Ok(EmitSettings {
            names,
            codecs,
            has_server: self.has_server,
            has_client: self.has_client,
            has_mocks: self.has_mocks && self.has_server,
            has_json: self.has_json || self.has_rest,
            has_required_fields: self.has_required_fields,
            has_field_masks: self.has_field_masks,
            has_pages: self.has_pages,
            topics: self.topics.clone(),
            attributes: self.service_attributes()?,
            uncommented: self.uncommented.clone(),
        })
    }

    /// Checks and returns the attributes for items of services.
    fn service_attributes(&self) -> Result<Vec<ServiceAttribute>, Error> {
        for ServiceAttribute { path, attribute, .. } in &self.attributes {
            if syn::Attribute::parse_outer.parse_str(attribute).is_err() {
                return Err(Error::other(format_args!("'{attribute}' for '{path}' is not a Rust attribute")));
            }
        }
        Ok(self.attributes.clone())
    }

    /// Checks that no package file has the name of the include file.
    fn check_include_file(&self, schema: &Schema) -> Result<(), Diagnostic> {
        let mut packages = schema.packages.iter();
        let is_same = |package: &&PackageSchema| Path::new(&naming::file(&package.name)) == self.include_file;
        let Some(package) = packages.find(is_same) else { return Ok(()) };
        let name = self.include_file.display();
        let message = format!("{name} is both the file of this package and the include file");
        Err(Diagnostic::new(message)
            .at(package.place.clone())
            .help("choose another name for the include file with `include_file`"))
    }

    /// Checks that the descriptors of all files do not overwrite the descriptors of a package.
    fn check_descriptor_set_path(&self, own: &Path, package: &str) -> Result<(), Error> {
        if self.file_descriptor_set_path.as_deref() != Some(own) {
            return Ok(());
        }
        let own = own.display();
        Err(Error::other(format_args!(
            "{own} holds the descriptors of package '{package}': choose another file_descriptor_set_path"
        )))
    }

    /// Returns `true` if enum variants keep the name of the enum. `prost_config` may have changed this option, and
    /// prost offers no getter, so the code of a probe enum tells.
    fn keeps_enum_prefix(&mut self) -> bool {
        let value = EnumValueDescriptorProto { name: Some("PROBE_A".to_owned()), number: Some(0), options: None };
        let probe = EnumDescriptorProto { name: Some("Probe".to_owned()), value: vec![value], ..Default::default() };
        let file = FileDescriptorProto { name: Some(String::new()), enum_type: vec![probe], ..Default::default() };
        let code = self.config.generate(vec![(Module::from_parts(["probe"]), file)]);
        code.is_ok_and(|code| code.values().any(|code| code.contains("ProbeA")))
    }

    fn target_dir(&self) -> Result<PathBuf, Error> {
        let from_cargo = || env::var_os("OUT_DIR").map(PathBuf::from);
        self.out_dir.clone().or_else(from_cargo).ok_or_else(|| Error::other(files::NO_DIR))
    }
}

fn read_api(encoded: &[u8], sources: &IncludeDirs) -> Result<RestApi, Error> {
    RestApi::read([encoded], |_| true).map_err(|error| Error::schema(&error.diagnostics, sources))
}

fn rerun_if_changed(path: &Path) {
    println!("cargo:rerun-if-changed={}", path.display());
}

/// Proto files and all their imports, as descriptors.
struct CompiledProtos {
    set: FileDescriptorSet,
    /// The same descriptors, with the options that the types of prost lack.
    encoded: Vec<u8>,
    sources: IncludeDirs,
}

/// Parses proto files and all their imports.
fn compile(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<CompiledProtos, Error> {
    let sources = IncludeDirs::new(includes);
    let parsed = ParsedFiles::default();
    let mut compiler = protox::Compiler::with_file_resolver(ProtoResolver::new(&sources, &parsed));
    compiler.include_imports(true).include_source_info(true);
    for proto in protos {
        if let Some(message) = sources.missing(proto.as_ref()) {
            return Err(Error::other(message));
        }
        compiler.open_file(proto).map_err(|error| Error::protox(&error, &sources))?;
    }
    let set = compiler.file_descriptor_set();
    let encoded = editions::restored(&set, compiler.encode_file_descriptor_set(), &sources);
    let parsed = parsed.take();
    let encoded = descriptors::as_written(encoded, &parsed).map_err(Error::other)?;
    let set = decode_descriptors(&encoded).map_err(|error| Error::schema(&error.diagnostics, &sources))?;
    let mut mistakes = editions::mistakes(&set, &sources);
    mistakes.extend(protoc_rules::find(&parsed, &set, &encoded));
    if !mistakes.is_empty() {
        return Err(Error::schema(&mistakes, &sources));
    }
    Ok(CompiledProtos { set, encoded, sources })
}
