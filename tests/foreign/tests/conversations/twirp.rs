//! The suite for clients of Twirp.

use std::path::Path;

use support::{foreign_program, in_real_time_within};

use crate::{LIMIT, run};

#[test]
fn the_client_passes_every_case_of_twirp() {
    let Some(suite) = foreign_program("clientcompat") else { return };
    in_real_time_within(LIMIT, async {
        let said = run(Path::new(&suite), &["-client", env!("CARGO_BIN_EXE_twirp_client")]).await.unwrap();
        assert!(said.contains("PASSED with 0 failures, 21 successes"), "{said}");
    });
}
