//! Reads any bytes and any records as a recording. A recording cut anywhere has the calls before the cut.
#![no_main]

use arbitrary::Arbitrary;
use frisbee_fuzz::fuzz_target;
use frpc_record::{Recording, RecordingFault};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Any(&'a [u8]),
    Records(Vec<(&'a [u8], &'a [u8])>, u16),
}

fn file(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut file = b"frpc-record\n\x01\0\0\0".to_vec();
    for (head, content) in records {
        let begin = file.len();
        for len in [head.len(), content.len()] {
            file.extend(u32::try_from(len).expect("it is short").to_le_bytes());
        }
        file.extend(crc32c::crc32c(&[*head, *content].concat()).to_le_bytes());
        file.extend(crc32c::crc32c(&file[begin..]).to_le_bytes());
        file.extend(head.iter().chain(*content));
    }
    file
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Any(bytes) => {
        // Only panics matter.
        let _ = Recording::parse(bytes.to_vec());
    }
    Input::Records(records, cut) => {
        let whole = file(&records);
        let cut = usize::from(cut) % whole.len();
        match (Recording::parse(whole.clone()), Recording::parse(whole[..cut].to_vec())) {
            (Ok(whole), Ok(part)) => {
                assert!(part.cut_at().is_some_and(|at| at <= cut as u64) && part.calls().len() <= whole.calls().len());
            }
            (Ok(_), Err(error)) => panic!("a cut is no damage: {error}"),
            (Err(error), _) => assert!(!matches!(error.fault, RecordingFault::Checksum | RecordingFault::Foreign)),
        }
    }
});
