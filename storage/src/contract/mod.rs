//! The contract suite: what every [`StateStore`](crate::StateStore) must do, as tests.
//!
//! A backend of your own adds one line to its tests (and `onceflow-storage` with feature `contract` to its development
//! dependencies):
//!
//! ```
//! use onceflow_storage::{Backend, StoreOptions, contract_tests};
//!
//! contract_tests!(memory_keeps_the_contract, |_root| Box::new(StoreOptions::new(Backend::Memory, "")));
//! # fn main() {}
//! ```
//!
//! The closure makes a [`StoreFactory`] for a root directory. A factory without a directory ignores it: the rules about
//! damaged files then find no files and say nothing. Each rule is one test, named by the number it has at
//! [`StateStore`](crate::StateStore). Rule 4 needs a store that can be made to fail, which no suite can do from outside: test it with
//! the backend; rule 9 likewise, as the suite does not know what a foreign directory is to you.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite fails by panicking")]

mod damage;
mod rules;
mod support;

pub use damage::rule_10_damage_is_typed;
pub use rules::{
    destroy_starts_over, rule_01_a_crash_leaves_a_whole_commit, rule_02_point_and_state_are_one,
    rule_03_epochs_have_no_gaps, rule_05_commits_are_read, rule_06_scans_after_flushes,
    rule_06_scans_keep_order_and_bounds, rule_08_one_owner, rule_11_an_unclean_stop, rule_12_loading,
    rule_12_loading_in_any_order, rule_12_loading_without_commit_leaves_nothing, rule_13_empty_keys_and_values,
};
pub use support::{Contract, Scratch, copy_directory, entries, point};

use crate::StoreFactory;
use std::path::Path;

/// Makes a factory whose stores lie under a root directory.
pub type Make<'m> = dyn Fn(&Path) -> Box<dyn StoreFactory> + 'm;

/// One test for each rule, in a module of the given name. See the [module](self).
#[macro_export]
macro_rules! contract_tests {
    ($name:ident, $make:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the closure may name anything around the macro")]
            use super::*;

            $crate::contract_tests!(@rules $make;
                rule_01_a_crash_leaves_a_whole_commit
                rule_02_point_and_state_are_one
                rule_03_epochs_have_no_gaps
                rule_05_commits_are_read
                rule_06_scans_keep_order_and_bounds
                rule_06_scans_after_flushes
                rule_08_one_owner
                rule_10_damage_is_typed
                rule_11_an_unclean_stop
                rule_12_loading
                rule_12_loading_in_any_order
                rule_12_loading_without_commit_leaves_nothing
                rule_13_empty_keys_and_values
                destroy_starts_over
            );
        }
    };
    (@rules $make:expr; $($rule:ident)*) => {$(
        #[test]
        fn $rule() {
            $crate::contract::$rule(&$crate::contract::Contract::new(
                &|root: &::std::path::Path| -> ::std::boxed::Box<dyn $crate::StoreFactory> { ($make)(root) },
            ));
        }
    )*};
}

#[cfg(test)]
mod tests;
