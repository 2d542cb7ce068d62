//! Options for schemas from files.

use std::path::PathBuf;

use frpc::{Call, Channel, Metadata, interceptor};
use frpc_dynamic::DynamicSchema;

use super::{ReflectionError, ServerSchema, files, reflection};
use crate::failure::Result;

/// Schema sources other than the server.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SchemaSources {
    /// A proto file with the services, used instead of reflection. Can be repeated.
    #[arg(long = "proto", short = 'p', value_name = "FILE", help_heading = "Schema")]
    protos: Vec<PathBuf>,
    /// A directory with imports of proto files. Default: the directory of each proto file.
    #[arg(long = "import", short = 'I', visible_alias = "import-path", value_name = "DIR", help_heading = "Schema")]
    imports: Vec<PathBuf>,
    /// A descriptor set with the services, as written by `protoc --include_imports -o` or `buf build -o`.
    #[arg(long = "descriptor-set", visible_alias = "protoset", value_name = "FILE", help_heading = "Schema")]
    descriptor_sets: Vec<PathBuf>,
}

impl SchemaSources {
    /// Returns `true` without files, so that the server has to be asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.protos.is_empty() && self.descriptor_sets.is_empty()
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<ServerSchema> {
        let mut schema = DynamicSchema::new();
        files::add_protos(&mut schema, &self.protos, &self.imports)?;
        for path in &self.descriptor_sets {
            files::add_set(&mut schema, path)?;
        }
        Ok(ServerSchema::new(schema))
    }

    /// Returns the schema of the files, or else of the server. From a server, it contains at least the service of
    /// `needed`, or all services.
    pub(crate) async fn schema(
        &self,
        channel: &Channel,
        metadata: &Metadata,
        needed: Option<&str>,
    ) -> std::result::Result<ServerSchema, ReflectionError> {
        if !self.is_empty() {
            return self.read().map_err(ReflectionError::Failed);
        }
        // A server that asks for a token does so for reflection, too.
        let metadata = metadata.clone();
        let with_metadata = interceptor(move |call: &mut Call| {
            call.head_mut().metadata_mut().clone_from(&metadata);
            Ok(())
        });
        reflection::schema(&channel.clone().layer(with_metadata), needed).await
    }
}
