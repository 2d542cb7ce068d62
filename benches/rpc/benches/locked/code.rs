//! The code in a file of machine code, by binutils.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Finds the instructions of a file that lock memory.
pub(super) fn locked_instructions(object: &str) -> HashSet<u64> {
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn", object]).output().expect("objdump is there");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(parse_instruction).filter(|(_, instruction)| locks(instruction)).map(|(at, _)| at).collect()
}

/// Reads the address and the instruction, which stand left and right of a tab.
fn parse_instruction(line: &str) -> Option<(u64, &str)> {
    let (address, instruction) = line.split_once(":\t")?;
    Some((u64::from_str_radix(address.trim(), 16).ok()?, instruction))
}

fn locks(instruction: &str) -> bool {
    instruction.starts_with("lock ") || instruction.starts_with("xchg ") && instruction.contains('(')
}

/// A line of source, and the function it stands in.
pub(super) struct Frame {
    function: String,
    /// The path of its file, and a number.
    pub(super) line: String,
}

impl Frame {
    /// Returns the name of the function without its types.
    pub(super) fn name(&self) -> &str {
        self.function.split('<').find(|part| !part.is_empty()).unwrap_or_default()
    }

    /// Returns the name of the file.
    pub(super) fn file(&self) -> &str {
        let path = self.line.split(':').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }
}

/// Finds the source of instructions, that of what was inlined first.
pub(super) fn sources(object: &str, addresses: &[u64]) -> HashMap<u64, Vec<Frame>> {
    let mut sources: HashMap<u64, Vec<Frame>> = HashMap::new();
    if !Path::new(object).exists() {
        return sources;
    }
    let mut addr2line = Command::new("addr2line")
        .args(["-aifC", "-e", object])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("addr2line comes with objdump");
    let input: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let mut stdin = addr2line.stdin.take().expect("it is a pipe");
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = addr2line.wait_with_output().expect("it ends with its input");
    writing.join().expect("it does not panic").expect("addr2line reads");
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut lines, mut address) = (text.lines(), 0);
    while let Some(line) = lines.next() {
        match line.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            Some(next) => address = next,
            None => {
                let frame = Frame { function: line.to_owned(), line: lines.next().unwrap_or_default().to_owned() };
                sources.entry(address).or_default().push(frame);
            }
        }
    }
    sources
}
