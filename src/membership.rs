//! What the tasks of a process, and whoever watches it, may know of the other processes of the job.

use crate::processor::stable_hash;
use crate::signal;
use crate::status::MembershipStatus;
use onceflow_log::MemberId;
use onceflow_txn::Owner;
use onceflow_types::Result;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Longest part of a host's name in a member id.
const HOST_CHARS_MAX: usize = 60;

/// This process's place in the group.
#[derive(Debug)]
pub(crate) struct Membership {
    status: Mutex<MembershipStatus>,
    members: signal::Sender<BTreeSet<MemberId>>,
}

impl Membership {
    pub(crate) fn new(member: MemberId, members: BTreeSet<MemberId>) -> Membership {
        let status = MembershipStatus {
            member,
            members: members.clone(),
            changes: 0,
            looks_failed: 0,
            tasks_taken: 0,
            tasks_given: 0,
            tasks_found: 0,
        };
        Membership { status: Mutex::new(status), members: signal::Sender::new(members) }
    }

    /// Takes over what was seen; says whether it is something new.
    pub(crate) fn saw(&self, members: BTreeSet<MemberId>) -> bool {
        let changed = self.members.get() != members;
        if changed {
            self.update(|status| {
                status.members.clone_from(&members);
                status.changes += 1;
            });
            self.members.send(members);
        }
        changed
    }

    pub(crate) fn status(&self) -> MembershipStatus {
        self.lock().clone()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut MembershipStatus)) {
        change(&mut self.lock());
    }

    pub(crate) fn own(&self) -> MemberId {
        self.lock().member.clone()
    }

    /// For whoever waits for other members than now.
    pub(crate) fn watch(&self) -> signal::Receiver<BTreeSet<MemberId>> {
        self.members.subscribe()
    }

    /// Whether another process of the job, which is alive as far as is known, goes by this owner's name.
    pub(crate) fn is_other_member(&self, owner: &Owner) -> bool {
        let members = self.members.get();
        member_of(owner).is_ok_and(|member| members.contains(&member) && member != self.own())
    }

    fn lock(&self) -> MutexGuard<'_, MembershipStatus> {
        // Each update is a few assignments: a poisoned lock still guards whole data.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The member that claims tasks as `owner`: the host's name, for people, and a hash of all that tells owners apart. A
/// process that is started again in its directory is the same member, so it is given its tasks again.
pub(crate) fn member_of(owner: &Owner) -> Result<MemberId> {
    let name = owner.host.split_whitespace().next().unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = name.chars().take(HOST_CHARS_MAX).map(safe).collect();
    MemberId::new(format!("{name}@{:016x}", stable_hash(format!("{}\0{}", owner.host, owner.directory).as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(host: &str, directory: &str) -> Owner {
        Owner { host: host.to_owned(), directory: directory.to_owned() }
    }

    #[test]
    fn a_member_is_told_by_host_boot_and_directory() {
        let one = member_of(&owner("host_1 boot-a", "/state")).unwrap();
        assert!(one.as_str().starts_with("host-1@"), "{one}");
        assert_eq!(one, member_of(&owner("host_1 boot-a", "/state")).unwrap());
        for other in
            [owner("host_1 boot-b", "/state"), owner("host_1 boot-a", "/other"), owner("host_2 boot-a", "/state")]
        {
            assert_ne!(one, member_of(&other).unwrap());
        }
        member_of(&owner("", "")).unwrap();
        member_of(&owner(&"é/ ".repeat(200), "x")).unwrap();
    }

    #[test]
    fn the_own_claim_is_nobody_elses() {
        let (own, other) = (owner("h b", "/1"), owner("h b", "/2"));
        let (a, b) = (member_of(&own).unwrap(), member_of(&other).unwrap());
        let membership = Membership::new(a.clone(), BTreeSet::from([a.clone()]));
        assert!(!membership.is_other_member(&own) && !membership.is_other_member(&other));
        assert!(membership.saw(BTreeSet::from([a.clone(), b.clone()])) && !membership.saw(BTreeSet::from([a, b])));
        assert!(!membership.is_other_member(&own) && membership.is_other_member(&other));
        assert_eq!(membership.status().changes, 1);
    }
}
