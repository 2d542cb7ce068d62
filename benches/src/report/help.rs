//! The help of the program, and the names that its options take.

use std::fmt::Write as _;

use benches::Contender;

use crate::plan::IDLE;
use crate::rows;
use crate::workload::WORKLOADS;

pub(crate) const HELP: &str = "\
Compares contenders in interleaved rounds of separate processes, and prints Markdown tables.

  report [OPTIONS]           measures; three quarters of an hour without options
  report --merge FILE...     prints the range of each ratio over several runs
  report --publish DIRECTORY FILE...
                             writes the page docs/benchmark and its report.json, with ranges over several runs
  report --list              lists rows and contenders

  --quick                    one round of the main rows, under three minutes
  --rounds N                 rounds of each row: 3, or 1 with --quick
  --minutes N                the total time; rounds become shorter or longer
  --row A,B                  these rows; `published` is all rows of the published tables and charts
  --contenders A,B           these contenders
  --syscalls                 also counts system calls, in other runs under strace
  --json FILE                writes all samples, for --merge and --publish
  --charts DIRECTORY         draws a chart for each family of rows

Programs that are not built are left out; the command that builds them is printed.
";

/// Returns the rows and contenders, one per line. A star marks the rows of a quick report and the default contenders.
pub(crate) fn list() -> String {
    let mut text = "rows (* also with --quick):\n".to_owned();
    let rows = WORKLOADS.iter().map(|workload| (workload.name, workload.quick));
    lines(&mut text, rows.chain([(IDLE, true), (rows::GROUP, false)]));
    text += "\ncontenders (* without --contenders):\n";
    lines(&mut text, Contender::ALL.iter().map(|contender| (contender.name, contender.is_default())));
    text
}

fn lines<'a>(text: &mut String, names: impl Iterator<Item = (&'a str, bool)>) {
    for (name, is_marked) in names {
        writeln!(text, "{} {name}", if is_marked { '*' } else { ' ' }).expect("text grows");
    }
}
