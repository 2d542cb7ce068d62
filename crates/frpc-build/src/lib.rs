//! Turns proto3 files into Rust from `build.rs`: messages, service traits and clients for frpc. Nothing else has to be
//! installed.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), frpc_build::Error> {
//!     frpc_build::compile_protos(&["proto/echo.proto"], &["proto"])
//! }
//! ```
//!
//! The crate then includes one package, or the modules of all packages as a tree:
//!
//! ```ignore
//! mod echo {
//!     frpc::include_proto!("echo");
//! }
//! ```
//!
//! Messages are structs of prost, so the same types work with tonic. Beside them stand the encoding that frpc speaks
//! and, for `service Echo`, the modules `echo_server`, `echo_client` and `echo_methods`.
//!
//! proto files ─protox─▶ descriptors ─▶ `Schema` (the order of the wire) ─▶ tokens ─▶ one file for each package.
#![forbid(unsafe_code)]

mod conflicts;
mod diagnostics;
mod emit;
mod files;
mod naming;
mod schema;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

pub use diagnostics::Error;
pub use prost_build;
use prost_build::Module;
pub use prost_types;
use prost_types::FileDescriptorSet;
use protox::prost::Message as _;

use crate::{diagnostics::Sources, emit::Emitter, files::Files, naming::Names, schema::Schema};

/// Compiles proto files into `OUT_DIR`. [`configure`] has the options.
pub fn compile_protos(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<(), Error> {
    configure().compile_protos(protos, includes)
}

/// Options for generating code, all at their defaults.
pub fn configure() -> Builder {
    let mut config = prost_build::Config::new();
    config.prost_path("::frpc::prost").prost_types_path("::frpc::prost_types");
    Builder {
        config,
        has_server: true,
        has_client: true,
        has_well_known_types: false,
        externs: Vec::new(),
        uncommented: Vec::new(),
        out_dir: None,
        include_file: PathBuf::from(files::TREE),
        file_descriptor_set_path: None,
        emits_rerun_if_changed: env::var_os("OUT_DIR").is_some(),
    }
}

/// Options for generating code. Where one takes a proto path, `.` stands for everything, `.shop` for a package,
/// `.shop.Order.id` for a field, and `Order.id` for all fields of that name.
#[derive(Debug)]
pub struct Builder {
    config: prost_build::Config,
    has_server: bool,
    has_client: bool,
    has_well_known_types: bool,
    externs: Vec<(String, String)>,
    uncommented: Vec<String>,
    out_dir: Option<PathBuf>,
    include_file: PathBuf,
    file_descriptor_set_path: Option<PathBuf>,
    emits_rerun_if_changed: bool,
}

impl Builder {
    /// Whether services get a trait and a server. Default: yes.
    pub fn build_server(mut self, enable: bool) -> Self {
        self.has_server = enable;
        self
    }

    /// Whether services get a client. Default: yes.
    pub fn build_client(mut self, enable: bool) -> Self {
        self.has_client = enable;
        self
    }

    /// Where the files go. Default: `OUT_DIR`, as cargo sets it.
    ///
    /// A directory among the sources makes them part of the repository; with
    /// `.out_dir("src/generated").include_file("mod.rs")` the crate says `mod generated;` and no more.
    pub fn out_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(dir.into());
        self
    }

    /// The name of the file that includes all others as a tree of modules. Default: `_includes.rs`, for which
    /// `frpc::include_protos!()` looks in `OUT_DIR`.
    pub fn include_file(mut self, name: impl Into<PathBuf>) -> Self {
        self.include_file = name.into();
        self
    }

    /// Also writes the descriptors of all files, imports included, to this path.
    pub fn file_descriptor_set_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.file_descriptor_set_path = Some(path.into());
        self
    }

    /// Whether cargo is told which proto files to watch. Default: yes in a build script.
    pub fn emit_rerun_if_changed(mut self, enable: bool) -> Self {
        self.emits_rerun_if_changed = enable;
        self
    }

    /// A package or type is generated elsewhere, by frpc-build too: `.extern_path(".shop", "::shop_protos::shop")`.
    /// No code is generated for it here, services included.
    pub fn extern_path(mut self, proto_path: impl Into<String>, rust_path: impl Into<String>) -> Self {
        let (proto_path, rust_path) = (proto_path.into(), rust_path.into());
        self.config.extern_path(&proto_path, &rust_path);
        self.externs.push((proto_path, rust_path));
        self
    }

    /// Whether types of `google.protobuf` are generated like all others. Default: no, those of prost are used.
    pub fn compile_well_known_types(mut self, enable: bool) -> Self {
        self.has_well_known_types = enable;
        self
    }

    /// These `bytes` fields are `Bytes`, slices of the packet they came in, and no copies.
    pub fn bytes(mut self, path: impl AsRef<str>) -> Self {
        self.config.bytes([path]);
        self
    }

    /// These maps are `BTreeMap`s.
    pub fn btree_map(mut self, path: impl AsRef<str>) -> Self {
        self.config.btree_map([path]);
        self
    }

    /// These message fields are boxed. Recursive ones always are.
    pub fn boxed(mut self, path: impl AsRef<str>) -> Self {
        self.config.boxed(path);
        self
    }

    /// Puts an attribute on these messages, enums and oneofs.
    pub fn type_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.type_attribute(path, attribute);
        self
    }

    /// Puts an attribute on these messages.
    pub fn message_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.message_attribute(path, attribute);
        self
    }

    /// Puts an attribute on these enums and oneofs.
    pub fn enum_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.enum_attribute(path, attribute);
        self
    }

    /// Puts an attribute on these fields.
    pub fn field_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.field_attribute(path, attribute);
        self
    }

    /// Leaves out the comments of these messages, fields, services and methods.
    pub fn disable_comments(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.config.disable_comments([&path]);
        self.uncommented.push(path);
        self
    }

    /// Any other option of prost. What has a method here has to be set here, or the encoding and the services do not
    /// know of it.
    pub fn prost_config(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Compiles proto files. Each of them and all their imports have to be in one of the include directories.
    pub fn compile_protos(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<(), Error> {
        let sources = Sources::new(includes);
        let mut compiler = protox::Compiler::new(includes).map_err(|error| Error::protox(&error, &sources))?;
        compiler.include_imports(true).include_source_info(true);
        for proto in protos {
            compiler.open_file(proto).map_err(|error| Error::protox(&error, &sources))?;
        }
        if self.emits_rerun_if_changed {
            compiler.files().filter_map(|file| file.path()).for_each(rerun_if_changed);
        }
        if let Some(path) = &self.file_descriptor_set_path {
            files::write(path, &compiler.encode_file_descriptor_set())?;
        }
        self.generate(compiler.file_descriptor_set(), &sources)
    }

    /// Compiles a file of descriptors, such as `protoc --include_imports --include_source_info -o` writes.
    pub fn compile_descriptor_set(self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|error| Error::io("read", path, error))?;
        let set = FileDescriptorSet::decode(&bytes[..])
            .map_err(|error| Error::other(format_args!("{} holds no descriptors: {error}", path.display())))?;
        if self.emits_rerun_if_changed {
            rerun_if_changed(path);
        }
        self.compile_fds(set)
    }

    /// Compiles descriptors. Files of an edition are read as proto2: every field that occurs at most once may be unset.
    pub fn compile_fds(self, set: FileDescriptorSet) -> Result<(), Error> {
        if let Some(path) = &self.file_descriptor_set_path {
            files::write(path, &set.encode_to_vec())?;
        }
        self.generate(set, &Sources::default())
    }

    fn generate(mut self, mut set: FileDescriptorSet, sources: &Sources) -> Result<(), Error> {
        for file in set.file.iter_mut().filter(|file| file.syntax() == "editions") {
            file.syntax = None;
        }
        let emitter = self.emitter()?;
        let schema = Schema::new(&set).map_err(|diagnostic| Error::schema(&[diagnostic], sources))?;
        let conflicts = conflicts::find(&schema, &emitter);
        if !conflicts.is_empty() {
            return Err(Error::schema(&conflicts, sources));
        }

        self.config.format(false); // That is done once, with our code.
        let modules = set.file.into_iter().map(|file| (Module::from_protobuf_package_name(file.package()), file));
        let mut structs = self.config.generate(modules.collect()).map_err(Error::other)?;
        let mut files = Files::default();
        for package in &schema.packages {
            let structs = structs.remove(&Module::from_protobuf_package_name(&package.name)).unwrap_or_default();
            let code = emitter.package(package, &structs);
            if !code.is_empty() || !emitter.is_elsewhere(&package.name) {
                files.add(&package.name, &code);
            }
        }
        files.write_to(&self.target_dir()?, &self.include_file)
    }

    fn emitter(&mut self) -> Result<Emitter, Error> {
        let mut names = Names::new();
        if self.has_well_known_types {
            self.config.compile_well_known_types();
        } else {
            names.add_well_known();
        }
        for (proto_path, rust_path) in &self.externs {
            if syn::parse_str::<syn::Type>(rust_path).is_err() {
                return Err(Error::other(format_args!(
                    "extern path '{rust_path}' for '{proto_path}' is no path of Rust"
                )));
            }
            names.add(proto_path, rust_path);
        }
        Ok(Emitter {
            names,
            has_server: self.has_server,
            has_client: self.has_client,
            uncommented: self.uncommented.clone(),
        })
    }

    fn target_dir(&self) -> Result<PathBuf, Error> {
        let from_cargo = || env::var_os("OUT_DIR").map(PathBuf::from);
        let missing = "there is no OUT_DIR, as outside of a build script: say where the files go with `out_dir`";
        self.out_dir.clone().or_else(from_cargo).ok_or_else(|| Error::other(missing))
    }
}

fn rerun_if_changed(path: &Path) {
    println!("cargo:rerun-if-changed={}", path.display());
}
