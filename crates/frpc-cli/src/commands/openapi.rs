//! `frpc openapi`: describes the REST API of proto files.

use std::path::PathBuf;

use crate::failure::Result;

/// Prints the OpenAPI 3.1 document of the REST API of proto files.
///
/// The API consists of the `google.api.http` options of methods. Comments become descriptions. The same files give the
/// same document.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct OpenapiCommand {
    /// The proto files.
    #[arg(required = true)]
    protos: Vec<PathBuf>,
    /// A directory with the proto files and their imports. Default: the directory of each file.
    #[arg(long = "import", short = 'I', visible_alias = "import-path", value_name = "DIR")]
    imports: Vec<PathBuf>,
    /// Writes the document to this file.
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
    /// The title of the API. Default: the names of its services.
    #[arg(long, default_value = "", hide_default_value = true)]
    title: String,
    /// The version of the API.
    #[arg(long, default_value = "1.0.0", value_name = "VERSION")]
    api_version: String,
}

const EXAMPLES: &str = "Examples:
  frpc openapi proto/library.proto
  frpc openapi proto/library.proto -I proto -o openapi.json --title Library";

impl OpenapiCommand {
    #[cfg(not(feature = "proto"))]
    pub(crate) fn run(&self) -> Result<()> {
        let Self { protos: _, imports: _, out: _, title: _, api_version: _ } = self;
        Err(crate::failure::CommandError::left_out("proto", "compiler for proto files"))
    }

    #[cfg(feature = "proto")]
    pub(crate) fn run(&self) -> Result<()> {
        use crate::{failure::CommandError, schema::proto_dirs, terminal::print_bytes};

        let imports = proto_dirs(&self.protos, &self.imports);
        let builder = frpc_build::configure().emit_rerun_if_changed(false).openapi_info(&self.title, &self.api_version);
        let document = builder.openapi_document(&self.protos, &imports);
        let document = document.map_err(|error| CommandError::new(format!("{error}").trim_end()))?;
        match &self.out {
            Some(path) => std::fs::write(path, document)
                .map_err(|error| CommandError::new(format!("{}: {error}", path.display()))),
            None => print_bytes(document.as_bytes()).map_err(CommandError::from),
        }
    }
}
