//! The options that say where to learn of services.

use std::path::PathBuf;

use frpc::Channel;
use prost_reflect::DescriptorPool;

use super::{Schema, Unreflected, files, reflection};
use crate::failure::Result;

/// The options that say where to learn of services, besides the server.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Sources {
    /// A proto file with the services, in place of reflection. May be given several times.
    #[arg(long = "proto", short = 'p', value_name = "FILE", help_heading = "Schema")]
    protos: Vec<PathBuf>,
    /// A directory in which imports of proto files are found. Default: that of each file.
    #[arg(long = "import", short = 'I', visible_alias = "import-path", value_name = "DIR", help_heading = "Schema")]
    imports: Vec<PathBuf>,
    /// A descriptor set with the services, as `protoc --include_imports -o` and `buf build -o` write it.
    #[arg(long = "descriptor-set", visible_alias = "protoset", value_name = "FILE", help_heading = "Schema")]
    descriptor_sets: Vec<PathBuf>,
}

impl Sources {
    /// Returns true if the server is to be asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.protos.is_empty() && self.descriptor_sets.is_empty()
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<Schema> {
        let mut pool = DescriptorPool::global();
        files::add_protos(&mut pool, &self.protos, &self.imports)?;
        for path in &self.descriptor_sets {
            files::add_set(&mut pool, path)?;
        }
        Ok(Schema::new(pool))
    }

    /// Returns the schema of the files, or else that of the server: as much of it as a name needs, or all.
    pub(crate) async fn schema(
        &self,
        channel: &Channel,
        needed: Option<&str>,
    ) -> std::result::Result<Schema, Unreflected> {
        match self.is_empty() {
            true => reflection::schema(channel, needed).await,
            false => self.read().map_err(Unreflected::Failed),
        }
    }
}
