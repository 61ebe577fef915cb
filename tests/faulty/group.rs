//! The membership of several processes on one log, which a test can bend.

use super::lock;
use onceflow::log::MemberId;
use onceflow::types::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Mutex;

#[derive(Default, Debug)]
pub struct Group {
    members: Mutex<BTreeSet<MemberId>>,
    /// Those that nobody hears.
    silent: Mutex<BTreeSet<MemberId>>,
    /// Those that hear nobody.
    deaf: Mutex<BTreeSet<MemberId>>,
    /// Those that get no answer.
    cut_off: Mutex<BTreeSet<MemberId>>,
}

impl Group {
    pub(super) fn look(&self, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        if lock(&self.cut_off).contains(own) {
            return Err(Error::retry("injected: no answer about members"));
        }
        lock(&self.members).insert(own.clone());
        if lock(&self.deaf).contains(own) {
            return Ok(BTreeSet::from([own.clone()]));
        }
        let silent = lock(&self.silent).clone();
        Ok(lock(&self.members).iter().filter(|member| *member == own || !silent.contains(*member)).cloned().collect())
    }

    /// Left, or dead with its connections closed.
    pub fn gone(&self, member: &MemberId) {
        lock(&self.members).remove(member);
    }

    pub fn silent(&self, member: &MemberId, silent: bool) {
        put(&self.silent, member, silent);
    }

    pub fn deaf(&self, member: &MemberId, deaf: bool) {
        put(&self.deaf, member, deaf);
    }

    pub fn cut_off(&self, member: &MemberId, cut_off: bool) {
        put(&self.cut_off, member, cut_off);
    }

    pub fn len(&self) -> usize {
        lock(&self.members).len()
    }
}

fn put(set: &Mutex<BTreeSet<MemberId>>, member: &MemberId, present: bool) {
    if present {
        lock(set).insert(member.clone());
    } else {
        lock(set).remove(member);
    }
}
