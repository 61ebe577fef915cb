//! Each check under random schedules and under PCT's, which bound how often a thread is stopped in the middle
//! (Burckhardt and others, *A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs*, ASPLOS 2010).

use onceflow_interleave::embedded::commits;
use onceflow_interleave::{calls, signals};

/// Schedules of each kind for each check: goal G11's 2,000 in the gate and 100,000 in the long form.
fn schedules() -> usize {
    if std::env::var_os("ONCEFLOW_LONG").is_some() { 50_000 } else { 1_000 }
}

/// How often PCT stops a thread that could go on.
const PREEMPTIONS: usize = 3;

fn interleave(check: fn()) {
    shuttle::check_random(check, schedules());
    shuttle::check_pct(check, schedules(), PREEMPTIONS);
}

#[test]
fn an_answer_comes_behind_the_sync() {
    interleave(commits::an_answer_comes_behind_the_sync);
}

#[test]
fn after_a_failed_sync_nothing_counts() {
    interleave(commits::after_a_failed_sync_nothing_counts);
}

#[test]
fn a_dropped_call_is_finished_before_the_end() {
    interleave(commits::a_dropped_call_is_finished_before_the_end);
}

#[test]
fn an_error_is_its_own_callers() {
    interleave(commits::an_error_is_its_own_callers);
}

#[test]
fn nobody_waits_for_what_was_set() {
    interleave(signals::nobody_waits_for_what_was_set);
}

#[test]
fn a_drain_does_not_undo_an_abort() {
    interleave(signals::a_drain_does_not_undo_an_abort);
}

#[test]
fn the_last_sender_wakes_whoever_waits() {
    interleave(signals::the_last_sender_wakes_whoever_waits);
}

#[test]
fn the_last_receiver_wakes_whoever_waits() {
    interleave(signals::the_last_receiver_wakes_whoever_waits);
}

#[test]
fn the_end_reaches_every_caller() {
    interleave(calls::the_end_reaches_every_caller);
}

#[test]
fn a_caller_that_leaves_leaves_nothing() {
    interleave(calls::a_caller_that_leaves_leaves_nothing);
}
