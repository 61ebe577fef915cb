//! Which member works on which task.
//!
//! A pure function of three facts that every process can look up: the tasks, the members, and who owned each task last (the
//! journals' Claims). So processes that see the same come to the same result without talking to each other.
//!
//! 1. **Shares.** With n tasks and k members each member gets n/k, rounded down, and the first n mod k of them, by name, one
//!    more. A member's share depends on the members alone, so when one joins no other share grows, and when one leaves
//!    none shrinks.
//! 2. **Keep.** A member keeps what it owns, up to its share. When it owns more, it keeps the tasks that rank it highest.
//! 3. **Give out.** The other tasks go, one after the other, each to the member that ranks highest for it among those
//!    below their share.
//!
//! Ranks are those of rendezvous hashing (Thaler and Ravishankar, *Using Name-Based Mappings to Increase Hit Rates*,
//! IEEE/ACM Transactions on Networking 6(1), 1998), the bound on each member's load is that of consistent hashing with
//! bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA 2018) with the least slack that there is. Last owners are needed:
//! no function of tasks and members alone is both balanced to one task and moves nothing but what it must (three tasks
//! and five members are enough to show it, `docs/decisions/0019-members-and-assignment.md`).
//!
//! While tasks move, last owners change. Whoever computes the assignment in between comes to the same result: a task that
//! has arrived is kept where it is, and leaves one place less for the rest.

use crate::processor::stable_hash;
use onceflow_log::MemberId;
use onceflow_types::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Who owns, or is to own, which task.
pub(crate) type Owners = BTreeMap<TaskId, MemberId>;

/// The owner of every task; empty without members.
pub(crate) fn assign(tasks: &BTreeSet<TaskId>, members: &BTreeSet<MemberId>, last: &Owners) -> Owners {
    let mut room = shares(tasks.len(), members);
    let mut owners = kept(tasks, last, &mut room);
    for task in tasks {
        if owners.contains_key(task) {
            continue;
        }
        let free = room.iter_mut().filter(|(_, room)| **room > 0);
        if let Some((member, room)) = free.max_by_key(|(member, _)| (rank(task, member), Reverse(*member))) {
            *room -= 1;
            owners.insert(task.clone(), (*member).clone());
        }
    }
    owners
}

/// How many tasks each member gets.
fn shares(tasks: usize, members: &BTreeSet<MemberId>) -> BTreeMap<&MemberId, usize> {
    let (Some(all), Some(more)) = (tasks.checked_div(members.len()), tasks.checked_rem(members.len())) else {
        return BTreeMap::new();
    };
    members.iter().enumerate().map(|(place, member)| (member, all + usize::from(place < more))).collect()
}

/// What stays where it is; `room` is what is left of the shares.
fn kept(tasks: &BTreeSet<TaskId>, last: &Owners, room: &mut BTreeMap<&MemberId, usize>) -> Owners {
    let mut owned: BTreeMap<&MemberId, Vec<&TaskId>> = BTreeMap::new();
    for task in tasks {
        if let Some(owner) = last.get(task) {
            owned.entry(owner).or_default().push(task);
        }
    }
    let mut owners = Owners::new();
    for (member, mut tasks) in owned {
        let Some(room) = room.get_mut(member) else { continue };
        tasks.sort_by_key(|task| (Reverse(rank(task, member)), *task));
        tasks.truncate(*room);
        *room -= tasks.len();
        owners.extend(tasks.into_iter().map(|task| (task.clone(), member.clone())));
    }
    owners
}

/// How much a task would like to be with a member.
fn rank(task: &TaskId, member: &MemberId) -> u64 {
    stable_hash(format!("{task} {member}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::Name;
    use proptest::prelude::*;

    fn tasks(count: usize) -> BTreeSet<TaskId> {
        let task = |queue| TaskId { subtopology: Name::new("s").unwrap(), broker: "b".into(), queue };
        (0..u32::try_from(count).unwrap()).map(task).collect()
    }

    fn member(number: usize) -> MemberId {
        // Names whose order is not that of the numbers.
        MemberId::new(format!("m{:08x}", stable_hash(&number.to_be_bytes()) >> 32)).unwrap()
    }

    fn members(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<MemberId> {
        numbers.into_iter().map(member).collect()
    }

    fn load(owners: &Owners, members: &BTreeSet<MemberId>) -> Vec<usize> {
        members.iter().map(|member| owners.values().filter(|owner| *owner == member).count()).collect()
    }

    fn moved(before: &Owners, after: &Owners) -> BTreeSet<TaskId> {
        after.iter().filter(|(task, owner)| before.get(*task) != Some(*owner)).map(|(task, _)| task.clone()).collect()
    }

    /// Owners of a group in which somebody joined or left `changes` times.
    fn grown(count: usize, start: usize, changes: &[u8]) -> (BTreeSet<TaskId>, Vec<usize>, Owners) {
        let (tasks, mut present) = (tasks(count), (0..start).collect::<Vec<_>>());
        let mut next = start;
        let mut owners = assign(&tasks, &members(present.clone()), &Owners::new());
        for change in changes {
            if change % 2 == 0 || present.len() == 1 {
                present.push(next);
                next += 1;
            } else {
                present.remove(usize::from(*change) % present.len());
            }
            owners = assign(&tasks, &members(present.clone()), &owners);
        }
        (tasks, present, owners)
    }

    proptest! {
        #[test]
        fn every_task_has_one_owner_and_loads_differ_by_one_at_most(
            count in 0usize..40, start in 1usize..12, changes in prop::collection::vec(any::<u8>(), 0..8),
            random in prop::collection::vec(0usize..20, 40),
        ) {
            let (tasks, present, owners) = grown(count, start, &changes);
            let members = members(present);
            // ... whoever owned them before, members or not.
            let last: Owners = tasks.iter().cloned().zip(random.into_iter().map(member)).collect();
            for owners in [owners, assign(&tasks, &members, &last)] {
                prop_assert_eq!(owners.keys().cloned().collect::<BTreeSet<_>>(), tasks.clone());
                prop_assert!(owners.values().all(|owner| members.contains(owner)));
                let load = load(&owners, &members);
                prop_assert!(load.iter().max().unwrap() - load.iter().min().unwrap() <= 1, "{:?}", load);
            }
        }

        #[test]
        fn one_that_leaves_moves_its_own_tasks_only(
            count in 0usize..40, start in 2usize..12, changes in prop::collection::vec(any::<u8>(), 0..8), who: u8,
        ) {
            let (tasks, mut present, before) = grown(count, start, &changes);
            prop_assume!(present.len() > 1);
            let gone = member(present.remove(usize::from(who) % present.len()));
            let after = assign(&tasks, &members(present), &before);
            let own: BTreeSet<TaskId> = tasks.into_iter().filter(|task| before[task] == gone).collect();
            prop_assert_eq!(moved(&before, &after), own);
        }

        #[test]
        fn one_that_joins_takes_its_share_and_nothing_else_moves(
            count in 0usize..40, start in 1usize..12, changes in prop::collection::vec(any::<u8>(), 0..8),
        ) {
            let (tasks, mut present, before) = grown(count, start, &changes);
            let new = member(1_000);
            present.push(1_000);
            let members = members(present);
            let after = assign(&tasks, &members, &before);
            let moved = moved(&before, &after);
            prop_assert!(moved.iter().all(|task| after[task] == new));
            prop_assert!(moved.len() <= count.div_ceil(members.len()));
        }

        #[test]
        fn whoever_looks_while_tasks_move_comes_to_the_same_result(
            count in 1usize..40, present in prop::collection::btree_set(0usize..14, 1..12),
            random in prop::collection::vec(prop::option::of(0usize..14), 40), arrived in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (tasks, members) = (tasks(count), members(present));
            let owned = tasks.iter().cloned().zip(random).filter_map(|(task, owner)| Some((task, member(owner?))));
            let last: Owners = owned.collect();
            let wanted = assign(&tasks, &members, &last);
            let mut between = last;
            for (task, _) in tasks.iter().zip(arrived).filter(|(_, arrived)| *arrived) {
                between.insert(task.clone(), wanted[task].clone());
            }
            prop_assert_eq!(&assign(&tasks, &members, &between), &wanted);
            prop_assert_eq!(&assign(&tasks, &members, &wanted), &wanted);
        }
    }

    #[test]
    fn with_more_members_than_tasks_some_stand_by() {
        let owners = assign(&tasks(2), &members(0..5), &Owners::new());
        assert_eq!(load(&owners, &members(0..5)).iter().sum::<usize>(), 2);
        assert!(load(&owners, &members(0..5)).iter().all(|load| *load <= 1));
    }

    #[test]
    fn without_members_nobody_owns_anything() {
        assert!(assign(&tasks(2), &BTreeSet::new(), &Owners::new()).is_empty());
    }
}
