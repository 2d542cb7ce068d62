//! Small sets of seeds in the repository, chosen from the large corpora of a machine.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::fuzzing::Fuzzers;

/// An input of a corpus or of the seeds.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    path: PathBuf,
    len: usize,
    edges: BTreeSet<u64>,
}

/// Replaces the generated seeds of a target by those inputs that cover most. Seeds with a name in words stay. Returns a
/// summary.
pub(crate) fn renew(fuzzers: &Fuzzers, target: &str) -> io::Result<String> {
    let fuzz = fuzzers.folder();
    let (work, corpus, seeds) =
        (fuzz.join("target/seeding").join(target), fuzz.join("corpus").join(target), fuzz.join("seeds").join(target));
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    let merged = work.join("merged");
    for folder in [&merged, &corpus, &seeds] {
        fs::create_dir_all(folder)?;
    }
    let control = work.join("control");
    let [merged, corpus] = [&merged, &corpus].map(|folder| folder.to_string_lossy().into_owned());
    let control_option = format!("-merge_control_file={}", control.display());
    let arguments = ["-set_cover_merge=1", &control_option, &merged, &corpus, &seeds.to_string_lossy()];
    let output = fuzzers.run(target, &arguments)?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let inputs = read_control_file(&fs::read_to_string(&control)?).ok_or(io::ErrorKind::InvalidData)?;
    let all = inputs.iter().flat_map(|input| &input.edges).collect::<BTreeSet<_>>().len();
    let (named, inputs): (Vec<_>, Vec<_>) =
        inputs.into_iter().partition(|input| input.path.starts_with(&seeds) && !is_generated(&input.path));
    let mut covered: BTreeSet<u64> = named.iter().flat_map(|input| input.edges.clone()).collect();
    let mut chosen = Vec::new();
    for input in choose(inputs, &mut covered) {
        chosen.push((seeds.join(input.path.file_name().ok_or(io::ErrorKind::NotFound)?), fs::read(&input.path)?));
    }
    for seed in fs::read_dir(&seeds)? {
        let path = seed?.path();
        if is_generated(&path) {
            fs::remove_file(path)?;
        }
    }
    let (count, len) = (chosen.len(), chosen.iter().map(|(_, bytes)| bytes.len()).sum::<usize>());
    for (path, bytes) in chosen {
        fs::write(path, bytes)?;
    }
    fs::remove_dir_all(&work)?;
    let (named, covered) = (named.len(), covered.len());
    Ok(format!("{named} seeds with names and {count} others of {len} bytes cover {covered} of {all} edges"))
}

/// Chooses inputs with the most new edges for their length, within the limits.
fn choose(mut inputs: Vec<Candidate>, covered: &mut BTreeSet<u64>) -> Vec<Candidate> {
    let (mut chosen, mut room) = (Vec::new(), GENERATED_LEN_MAX);
    while chosen.len() < GENERATED_MAX {
        let value = |input: &Candidate| {
            let new = input.edges.difference(covered).count();
            // A file has a cost of its own.
            (new * 1_000_000 / (input.len + FILE_COST), new)
        };
        inputs.retain(|input| input.len <= room && value(input).1 > 0);
        let best = (0..inputs.len()).max_by_key(|&index| value(&inputs[index]));
        let Some(best) = best else { break };
        let input = inputs.swap_remove(best);
        room -= input.len;
        covered.extend(&input.edges);
        chosen.push(input);
    }
    chosen
}

/// Reads the names, lengths and edges that libFuzzer notes while it merges.
fn read_control_file(text: &str) -> Option<Vec<Candidate>> {
    let mut lines = text.lines();
    let count = lines.next()?.parse().ok()?;
    lines.next()?;
    let candidate = |path: &str| Candidate { path: path.into(), len: 0, edges: BTreeSet::new() };
    let mut inputs: Vec<_> = lines.by_ref().take(count).map(candidate).collect();
    for line in lines {
        let mut words = line.split_whitespace();
        let (kind, index) = (words.next()?, words.next()?.parse::<usize>().ok()?);
        let (input, mut numbers) = (inputs.get_mut(index)?, words.map(|word| word.parse::<u64>().ok()));
        match kind {
            "STARTED" => input.len = usize::try_from(numbers.next()??).ok()?,
            // Eight features of an edge count its executions.
            "FT" => input.edges = numbers.map(|feature| feature.map(|feature| feature / 8)).collect::<Option<_>>()?,
            _ => {}
        }
    }
    Some(inputs)
}

/// Returns `true` for the name of a hash.
fn is_generated(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.len() >= 12 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Limits of the generated seeds of one target.
const GENERATED_LEN_MAX: usize = 6 << 10;
const GENERATED_MAX: usize = 40;
const FILE_COST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, len: usize, edges: &[u64]) -> Candidate {
        Candidate { path: name.into(), len, edges: edges.iter().copied().collect() }
    }

    #[test]
    fn a_control_file_is_read() {
        let text = "2\n0\n/seeds/a\n/corpus/b c\nSTARTED 0 3\nFT 0 8 9 16\nCOV 0 1 2\nSTARTED 1 4\nFT 1 800\nCOV 1 3\n";
        assert_eq!(read_control_file(text), Some(vec![input("/seeds/a", 3, &[1, 2]), input("/corpus/b c", 4, &[100])]));
        assert_eq!(read_control_file("1\n0\na\nFT 7 8\n"), None);
    }

    #[test]
    fn the_cheapest_inputs_with_new_edges_are_chosen() {
        let inputs = vec![
            input("long", GENERATED_LEN_MAX, &[1, 2, 3]),
            input("known", 1, &[9]),
            input("short", 10, &[1, 2]),
            input("third", 10, &[3]),
            input("too long", GENERATED_LEN_MAX + 1, &[4]),
        ];
        let mut covered = [9].into();
        let chosen: Vec<_> = choose(inputs, &mut covered).into_iter().map(|input| input.path).collect();
        assert_eq!(chosen, [PathBuf::from("short"), PathBuf::from("third")]);
        assert_eq!(covered, [1, 2, 3, 9].into());
    }

    #[test]
    fn hashes_are_no_words() {
        assert!(is_generated(Path::new("seeds/0375308a5732")));
        assert!(!is_generated(Path::new("seeds/choice_none")));
        assert!(!is_generated(Path::new("seeds/added")));
    }

    #[test]
    fn the_seeds_in_the_repository_stay_small() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
        let entries =
            |folder: &Path| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let files = entries(&folder).flat_map(|target| entries(&target).collect::<Vec<_>>());
        let len: u64 = files.map(|file| file.metadata().expect("a file").len()).sum();
        assert!(len <= 200 << 10, "{len} bytes of seeds");
    }
}
