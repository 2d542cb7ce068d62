//! The generated tables of docs/notes/campaign.md.

use crate::totals::CampaignTotals;

/// Replaces the tables of the page. Returns `None` if it has no place for them.
pub(crate) fn with_tables(page: &str, totals: &CampaignTotals) -> Option<String> {
    let page = replace(page, "simulations", &totals.simulation_table())?;
    let page = replace(&page, "totals", &totals.table())?;
    replace(&page, "fuzzing", &totals.fuzz_table())
}

fn replace(page: &str, name: &str, table: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}: generated -->"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{table}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_page_has_the_totals_of_the_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(folder.join("../docs/notes/campaign.md")).expect("the page");
        let totals = CampaignTotals::read(&folder.join("totals.json")).expect("the totals");
        assert!(with_tables(&page, &totals).is_some_and(|renewed| renewed == page), "run `frpc-campaign table`");
        for failure in totals.failures {
            assert_ne!(failure.fix, "", "{}: write the cause and the fix", failure.what);
        }
    }
}
