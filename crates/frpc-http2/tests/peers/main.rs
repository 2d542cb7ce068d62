//! Connections against attackers, against each other, against the crate `h2`, and against h2spec.

mod h2spec;
