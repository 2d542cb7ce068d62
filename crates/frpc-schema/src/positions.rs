//! Mapping between the numbers of enum values in Rust and their positions on the wire.
//!
//! The wire encodes an enum value as its position in the declaration. A peer may still hold undeclared numbers and send
//! undeclared positions, so these are mapped to each other, one to one. An undeclared position maps to the same number.
//! If a declared value has that number, the position of that value is used as the number instead, and so on. No two of
//! these chains meet.

use std::collections::HashMap;

use crate::model::EnumSchema;

/// Tables between numbers and positions, for an enum with at least one number different from its position. They contain
/// the end of every chain, so a lookup never follows one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PositionTables {
    /// Pairs of number and position, in ascending order of numbers. Declared numbers have their first position. An
    /// undeclared number below the count of values has the undeclared position it maps to. It is missing if an alias
    /// leaves no position for it.
    pub positions: Vec<(i32, u32)>,
    /// Undeclared positions not equal to the number they map to, in ascending order.
    pub unknown: Vec<(u32, i32)>,
}

impl PositionTables {
    /// Returns the tables of an enum, or `None` if every number equals its position.
    pub fn of(declared: &EnumSchema) -> Option<Self> {
        Self::of_numbers(&declared.values.iter().map(|value| value.number).collect::<Vec<_>>())
    }

    fn of_numbers(numbers: &[i32]) -> Option<Self> {
        let count = u32::try_from(numbers.len()).expect("descriptors are shorter than 4 GiB");
        if (0..).zip(numbers).all(|(position, &number)| position == number) {
            return None;
        }
        let mut firsts = HashMap::with_capacity(numbers.len());
        for (position, &number) in (0_u32..).zip(numbers) {
            firsts.entry(number).or_insert(position);
        }
        let mut positions: Vec<_> = firsts.iter().map(|(&number, &position)| (number, position)).collect();
        let mut unknown = Vec::new();
        for number in (0..count.cast_signed()).filter(|number| !firsts.contains_key(number)) {
            let mut position = number.cast_unsigned();
            // Chains never meet, so all of them together have at most as many steps as there are values.
            let is_alias = loop {
                let Some(&declared) = numbers.get(position as usize) else { break false };
                if firsts[&declared] != position {
                    break true;
                }
                position = declared.cast_unsigned();
            };
            if !is_alias {
                positions.push((number, position));
                unknown.push((position, number));
            }
        }
        positions.sort_unstable();
        unknown.sort_unstable();
        Some(Self { positions, unknown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_numbers_need_no_tables() {
        assert_eq!(PositionTables::of_numbers(&[0, 1, 2]), None);
    }

    #[test]
    fn tables_contain_resolved_positions() {
        let sparse = PositionTables::of_numbers(&[0, 100, 10, -1]).expect("numbers are not positions");
        let positions = [(-1, 3), (0, 0), (1, 100), (2, 10), (3, u32::MAX), (10, 2), (100, 1)];
        assert_eq!(sparse.positions, positions);
        assert_eq!(sparse.unknown, [(10, 2), (100, 1), (u32::MAX, 3)]);
        let gap = PositionTables::of_numbers(&[0, 1, 2, 4, 5, 6]).expect("numbers are not positions");
        assert_eq!(gap.unknown, [(6, 3)]);
        assert_eq!(gap.positions, [(0, 0), (1, 1), (2, 2), (3, 6), (4, 3), (5, 4), (6, 5)]);
        let aliased = PositionTables::of_numbers(&[0, 5, 5, 2]).expect("numbers are not positions");
        assert_eq!(aliased.positions, [(0, 0), (1, 5), (2, 3), (5, 1)]);
        assert_eq!(aliased.unknown, [(5, 1)]);
    }
}
