//! Checks the mapping between enum positions and numbers against a step-by-step computation.

use awkward::{
    codec::hostile::{Gaps, Wide, wide::Choice},
    vectors::{Aliased, Sparse},
};
use frpc::codec::{Enumeration, Reader, Writer};

use crate::{plain, read, round_trip};

#[test]
fn generated_tables_match_following_the_chain() {
    check::<Gaps>();
    check::<Sparse>();
    check::<Aliased>();
}

fn check<E: Enumeration>() {
    let numbers = E::NUMBERS;
    let count = u32::try_from(numbers.len()).expect("few");
    for position in (count..300).chain([i32::MAX.cast_unsigned(), 1 << 31, u32::MAX - 1, u32::MAX]) {
        let mut out = Writer::new(Vec::new());
        out.u32(position);
        let mut number = 0;
        let bytes = out.finish().into();
        Reader::new(&bytes).enumeration::<E>(&mut number).expect("an enum takes any position");
        assert_eq!(number, number_by_steps(numbers, position), "{position} in {numbers:?}");

        let mut out = Writer::new(Vec::new());
        out.enumeration::<E>(number);
        assert_eq!(out.finish(), bytes, "{number} in {numbers:?}");
    }
    assert!(E::POSITIONS.is_sorted_by_key(|&(number, _)| number));
    assert!(E::UNKNOWN.is_sorted_by_key(|&(position, _)| position));
    assert!(E::POSITIONS.len() <= 2 * numbers.len() && E::UNKNOWN.len() <= numbers.len());
}

#[test]
fn an_enum_number_after_many_steps_round_trips() {
    for number in (-3..90).chain([i32::MIN, i32::MAX]) {
        let choice = Some(Choice::Gaps(number));
        round_trip(&Wide { f011: number, f012: vec![number; 3], choice, ..Wide::default() });
    }
    assert_eq!(Gaps::NUMBERS.len(), 40);
    let wide: Wide = read(&plain(&Wide { f011: 1, ..Wide::default() })).expect("the same layout");
    assert_eq!(wide.f011, 1, "it has the position 40, which is taken by value after value down to the gap");
}

fn number_by_steps(numbers: &[i32], position: u32) -> i32 {
    let mut number = position.cast_signed();
    while let Some(taken_by) = numbers.iter().position(|&declared| declared == number) {
        number = i32::try_from(taken_by).expect("few");
    }
    number
}
