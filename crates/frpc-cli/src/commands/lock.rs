//! `frpc lock`: maintains the lock file of proto files outside of a build.

use std::path::PathBuf;

use crate::failure::Result;

/// Checks proto files for breaking changes and updates their lock file.
///
/// Does the same as `Builder::lock` of frisbee-rpc-build: a breaking change is an error and names the affected peers.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LockCommand {
    /// The lock file, created if missing.
    lock: PathBuf,
    /// The proto files.
    #[arg(required = true)]
    protos: Vec<PathBuf>,
    /// A directory with the proto files and their imports. Default: the directory of each file.
    #[arg(long = "import", short = 'I', visible_alias = "import-path", value_name = "DIR")]
    imports: Vec<PathBuf>,
    /// Writes nothing and fails if the lock file is out of date, for use in CI.
    #[arg(long)]
    check: bool,
    /// Allows changes that break plain peers only, such as those in Go.
    #[arg(long)]
    no_plain_peers: bool,
}

const EXAMPLES: &str = "Examples:
  frpc lock proto/frpc.lock proto/echo.proto
  frpc lock proto/frpc.lock proto/echo.proto --check";

impl LockCommand {
    #[cfg(not(feature = "proto"))]
    pub(crate) fn run(&self, _: bool) -> Result<()> {
        let Self { lock: _, protos: _, imports: _, check: _, no_plain_peers: _ } = self;
        Err(crate::failure::CommandError::left_out("proto", "compiler for proto files"))
    }

    #[cfg(feature = "proto")]
    pub(crate) fn run(&self, is_json: bool) -> Result<()> {
        use serde_json::json;

        use crate::{
            failure::CommandError,
            terminal::{print_json, print_line},
        };

        let imports = crate::schema::proto_dirs(&self.protos, &self.imports);
        let builder = frpc_build::configure()
            .emit_rerun_if_changed(false)
            .lock(&self.lock)
            .lock_plain_peers(!self.no_plain_peers);
        let is_changed = match self.check {
            true => builder.lock_is_stale(&self.protos, &imports),
            false => builder.update_lock(&self.protos, &imports),
        };
        let is_changed = is_changed.map_err(|error| CommandError::new(format!("{error}").trim_end()))?;
        let shown = self.lock.display();
        if self.check && is_changed {
            return Err(CommandError::new(format!("{shown} is out of date, although no change breaks peers"))
                .with_try("the same without --check, and commit the file"));
        }
        match (is_json, is_changed) {
            (true, _) => print_json(json!({ "lock": self.lock, "changed": is_changed }))?,
            (false, true) => print_line(format_args!("{shown}: written"))?,
            (false, false) => print_line(format_args!("{shown}: unchanged"))?,
        }
        Ok(())
    }
}
