//! Rule 13.

use super::Subject;
use super::support::{must, unique};
use crate::{Log, MemberId};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{sleep, timeout};

fn member(name: &str) -> MemberId {
    MemberId::new(unique(name)).expect("the suite's names are member ids")
}

async fn wait_for(log: &dyn Log, group: &str, own: &MemberId, wanted: &[&MemberId], within: Duration) {
    let wanted: BTreeSet<MemberId> = wanted.iter().copied().cloned().collect();
    let looking = async {
        while must("members", log.members(group, own)).await != wanted {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(within, looking).await.unwrap_or_else(|_| panic!("rule 13: {wanted:?} are not the members in {within:?}"));
}

pub(super) async fn a_member_is_there_until_it_leaves(subject: &dyn Subject) {
    let group = unique("group");
    let (one, two) = (subject.log(&group).await, subject.log(&group).await);
    let (a, b) = (member("a"), member("b"));
    let seen = must("members", one.members(&group, &a)).await;
    assert_eq!(seen, BTreeSet::from([a.clone()]), "rule 13: the caller is a member");
    let Some(within) = subject.notes().members_within else {
        let seen = must("members", two.members(&group, &b)).await;
        assert_eq!(seen, BTreeSet::from([b]), "rule 13: there are no others");
        return;
    };
    wait_for(&*two, &group, &b, &[&a, &b], within).await;
    wait_for(&*one, &group, &a, &[&a, &b], within).await;
    must("leave", two.leave(&group, &b)).await;
    wait_for(&*one, &group, &a, &[&a], within).await;
    // It may come back, and leave twice.
    wait_for(&*two, &group, &b, &[&a, &b], within).await;
    must("leave", two.leave(&group, &b)).await;
    must("leave", two.leave(&group, &b)).await;
    wait_for(&*one, &group, &a, &[&a], within).await;
}

pub(super) async fn groups_know_nothing_of_each_other(subject: &dyn Subject) {
    let (group, other) = (unique("group"), unique("group"));
    let (one, two) = (subject.log(&group).await, subject.log(&other).await);
    let (a, b) = (member("a"), member("b"));
    must("members", one.members(&group, &a)).await;
    assert_eq!(must("members", two.members(&other, &b)).await, BTreeSet::from([b]), "rule 13");
    assert_eq!(must("members", one.members(&group, &a)).await, BTreeSet::from([a]), "rule 13");
}
