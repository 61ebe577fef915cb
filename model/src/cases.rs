//! The cases: A = the first draft, P = proposed, M = one rule removed or changed, R = Release, C = causes of raw duplicates.

use crate::rules::{Bounds, CheckBack, ClaimRule, Lease, Order, PubThrough, Reader, Release, Rules, S3};

/// A set of rules under bounds.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub rules: Rules,
    pub bounds: Bounds,
}

/// All cases, in the order in which they run.
pub fn cases() -> Vec<Case> {
    let w = Rules::written();
    let p = Rules::proposed();
    let b = Bounds::base();
    let dedup = Bounds { halves: false, ..b };
    let mut v: Vec<Case> = vec![];
    let mut add = |name, rules, bounds| v.push(Case { name, rules, bounds });
    // A: as written
    add("A1 written", w, b);
    add("A2 written, store keeps unpublished", Rules { store_keeps_unpublished: true, ..w }, Bounds { epochs: 3, ..b });
    add(
        "A3 written, full store: check-back",
        Rules { store_keeps_unpublished: true, store_keeps_claims: true, ..w },
        Bounds { checks: 1, raw_dup_is_bad: true, crashes: 0, faults: 0, claims: 1, owners: 1, ..b },
    );
    let full = Rules { store_keeps_unpublished: true, store_keeps_claims: true, checkback: CheckBack::Never, ..w };
    add("A4 written, full store, no check-back Commit, journal power loss", full, Bounds { power_journal: 1, ..b });
    add(
        "A5 same, re-reads instead of stopping",
        Rules { low_ack_stops: false, ..full },
        Bounds { power_journal: 1, ..b },
    );
    add(
        "A6 same, Claim needs SEND_OK",
        Rules { low_ack_stops: false, claim_needs_ok: true, ..full },
        Bounds { power_journal: 1, ..b },
    );
    add(
        "A7 same, END acknowledgement may be weak, sink power loss",
        Rules { end_durable: false, ..full },
        Bounds { power_sink: 1, faults: 1, ..b },
    );
    add(
        "A12 written, full store, check-backs, no power loss, reader view",
        Rules { store_keeps_unpublished: true, store_keeps_claims: true, ..w },
        Bounds { checks: 1, ..b },
    );
    add(
        "A11 check-back Commit from a journal tail that is lost",
        Rules {
            checkback: CheckBack::CommitUnlessVisible,
            s3: S3::UntilOk,
            claim_needs_ok: true,
            low_ack_stops: false,
            ..full
        },
        Bounds { power_journal: 1, checks: 1, faults: 1, ..b },
    );
    add("A8 written, full store, no power loss", full, b);
    add(
        "A9 lease by read: raw duplicate without END fault",
        full,
        Bounds { raw_dup_is_bad: true, faults: 0, crashes: 0, claims: 2, ..b },
    );
    add("A10 mid-start reader, no floor", full, Bounds { mid_start: true, crashes: 0, ..b });
    // P: proposed
    add("P1 proposed", p, b);
    add("P2 proposed, 3 claims 3 owners store loss", p, Bounds { owners: 3, store_loss: true, ..b });
    add("P3 proposed, journal power loss", p, Bounds { power_journal: 1, ..b });
    add("P4 proposed, sink power loss", p, Bounds { power_sink: 1, faults: 1, ..b });
    add("P5 proposed, 2 outputs 2 parts", p, Bounds { outputs: 2, parts: 2, faults: 1, ..b });
    add("P6 proposed, 3 epochs", p, Bounds { epochs: 3, faults: 1, ..b });
    add("P7 proposed, Dedup", p, dedup);
    add("P8 proposed, mid-start readers", p, Bounds { mid_start: true, outputs: 2, crashes: 0, ..b });
    add("P9 proposed, Dedup, mid-start, store loss", p, Bounds { mid_start: true, store_loss: true, ..dedup });
    add("P10 proposed, no lease at all", Rules { lease: Lease::None, ..p }, b);
    let small = Bounds { claims: 2, faults: 1, ..b };
    add("P12 proposed, small", p, small);
    add("P13 proposed, small, changes inside the Commit", p, Bounds { parts: 0, ..small });
    add("P14 proposed, small, Dedup, mid-start", p, Bounds { halves: false, mid_start: true, ..small });
    add("P15 proposed, small, journal power loss", p, Bounds { power_journal: 1, ..small });
    add("P16 proposed, small, sink power loss", p, Bounds { power_sink: 1, ..small });
    add(
        "P17 proposed, small, low acknowledgement stops",
        Rules { low_ack_stops: true, ..p },
        Bounds { power_journal: 1, ..small },
    );
    add("P18 every Claim counts, small", Rules { claim: ClaimRule::Any, store_keeps_claims: false, ..p }, small);
    add("P19 proposed, 2 faults, 2 claims, no crash", p, Bounds { claims: 2, crashes: 0, ..b });
    add(
        "P11 proposed, lease kept: raw duplicate without END fault",
        p,
        Bounds { raw_dup_is_bad: true, faults: 0, crashes: 1, claims: 3, ..b },
    );
    // M: mutations, from the proposed rules unless said
    let n = Rules { claim: ClaimRule::NonceSeen, ..p };
    add("M1a nonce rule, kept in the store", n, b);
    add("M1b every Claim counts", Rules { claim: ClaimRule::Any, ..p }, b);
    add("M1c only the current nonce is a resend", Rules { claim: ClaimRule::CurrentNonce, ..p }, b);
    add("M1d nonce rule, store forgets nonces", Rules { store_keeps_claims: false, ..n }, Bounds { epochs: 3, ..b });
    add("M1e CAS, store forgets nonces", Rules { store_keeps_claims: false, ..p }, b);
    add("M2 epoch = last + 1 removed", Rules { epoch_check: false, ..p }, b);
    add("M3 generation check removed", Rules { gen_check: false, ..p }, b);
    add("M2b same, changes inside the Commit", Rules { epoch_check: false, ..p }, Bounds { parts: 0, ..b });
    add("M3b same, changes inside the Commit", Rules { gen_check: false, ..p }, Bounds { parts: 0, ..b });
    add("M4a Delta completeness removed", Rules { delta_complete: false, ..p }, b);
    add("M4b completeness removed, Deltas not waited for", Rules { delta_complete: false, delta_wait: false, ..p }, b);
    add("M4c completeness kept, Deltas not waited for", Rules { delta_wait: false, ..p }, b);
    add(
        "M4d Delta filter and drop at Claim removed",
        Rules { delta_filter: false, ..p },
        Bounds { parts: 2, faults: 2, ..b },
    );
    add("M5a no publish order", Rules { order: Order::None, ..p }, Bounds { outputs: 2, faults: 1, ..b });
    add("M5b no publish order, reader without hold", Rules { order: Order::None, reader: Reader::NoHold, ..p }, b);
    add(
        "M5c epoch order, reader without hold",
        Rules { reader: Reader::NoHold, ..p },
        Bounds { outputs: 2, faults: 1, ..b },
    );
    add(
        "M5d sequence order, reader without hold",
        Rules { order: Order::Seq, reader: Reader::NoHold, ..p },
        Bounds { outputs: 2, faults: 2, ..b },
    );
    add(
        "M5e no publish order, mid-start",
        Rules { order: Order::None, ..p },
        Bounds { mid_start: true, outputs: 1, crashes: 0, ..b },
    );
    add("M6a dispatch barrier removed", Rules { barrier: false, ..p }, b);
    add(
        "M6b dispatch barrier removed, raw view",
        Rules { barrier: false, ..p },
        Bounds { raw_dup_is_bad: true, faults: 0, ..b },
    );
    add(
        "M7 Rollback-if-visible removed, raw view",
        Rules { checkback: CheckBack::CommitIfListed, ..p },
        Bounds { raw_dup_is_bad: true, checks: 1, faults: 0, crashes: 0, claims: 1, owners: 1, ..b },
    );
    add(
        "M7b Commit by tag (orphans)",
        Rules { checkback: CheckBack::CommitByTag, ..p },
        Bounds { checks: 1, faults: 1, crashes: 0, claims: 1, owners: 1, ..b },
    );
    add(
        "M7c check-back Commit, reader view only",
        Rules { checkback: CheckBack::CommitIfListed, ..p },
        Bounds { checks: 2, faults: 1, ..b },
    );
    add("M8a published_through ignored", Rules { pub_through: PubThrough::Ignored, ..p }, b);
    add("M8b published_through counts decided epochs", Rules { pub_through: PubThrough::TooHigh, ..p }, b);
    add("M9a lease violated", Rules { lease: Lease::Violated, ..p }, b);
    add(
        "M9b lease violated, raw view",
        Rules { lease: Lease::Violated, ..p },
        Bounds { raw_dup_is_bad: true, faults: 0, ..b },
    );
    add(
        "M9c scan before the wait, raw view",
        Rules { scan_after_wait: false, ..p },
        Bounds { raw_dup_is_bad: true, faults: 0, crashes: 1, ..b },
    );
    add(
        "M9d no renewal after the wait, raw view",
        Rules { renew_after_wait: false, ..p },
        Bounds { raw_dup_is_bad: true, faults: 0, crashes: 1, ..b },
    );
    add("M10 S3 blind", Rules { s3: S3::Blind, ..p }, b);
    add("M11 nothing read between", Rules { read_between: false, ..p }, b);
    add(
        "M12 no verify after a lost END reply, raw view",
        Rules { verify: false, ..p },
        Bounds { raw_dup_is_bad: true, faults: 1, crashes: 0, claims: 1, ..b },
    );
    add(
        "M12b no lease, barrier or scan, reader view",
        Rules { verify: false, barrier: false, lease: Lease::None, ..p },
        b,
    );
    add(
        "M12c same, Dedup, mid-start",
        Rules { verify: false, barrier: false, lease: Lease::None, ..p },
        Bounds { mid_start: true, ..dedup },
    );
    add(
        "M13 reader keeps the maximum, epoch order, 2 outputs",
        Rules { reader: Reader::MaxOnly, ..p },
        Bounds { outputs: 2, faults: 1, ..b },
    );
    add("M14 store forgets unpublished", Rules { store_keeps_unpublished: false, ..p }, b);
    add(
        "M15 published_through without flush",
        Rules { pub_needs_flush: false, ..p },
        Bounds { power_sink: 1, faults: 1, ..b },
    );
    add(
        "M15b any later SEND_OK proves",
        Rules { same_connection: false, ..p },
        Bounds { power_sink: 1, faults: 0, crashes: 0, claims: 1, epochs: 3, owners: 1, ..b },
    );
    add("M16 low acknowledgement stops", Rules { low_ack_stops: true, ..p }, Bounds { power_journal: 1, ..b });
    add(
        "R1 Release names the generation only",
        Rules { release: Release::Plain, ..p },
        Bounds { claims: 2, faults: 1, ..dedup },
    );
    add(
        "R2 Release names the epoch, too",
        Rules { release: Release::WithEpoch, ..p },
        Bounds { claims: 2, faults: 1, ..dedup },
    );
    add("R3 same, halves", Rules { release: Release::WithEpoch, ..p }, Bounds { claims: 3, faults: 1, ..b });
    add(
        "R4 Release ends its generation",
        Rules { release: Release::Ends, ..p },
        Bounds { claims: 2, faults: 1, ..dedup },
    );
    add("R5 same, halves", Rules { release: Release::Ends, ..p }, Bounds { claims: 2, faults: 1, ..b });
    // C: causes of raw duplicates
    add("C1 causes, proposed", p, Bounds { causes: true, ..b });
    add(
        "C2 causes, proposed, lease violated",
        Rules { lease: Lease::Violated, ..p },
        Bounds { causes: true, faults: 1, ..b },
    );
    add(
        "C3 causes, written + full store, checks",
        Rules { checkback: CheckBack::CommitUnlessVisible, ..full },
        Bounds { causes: true, checks: 1, faults: 1, crashes: 1, claims: 2, ..b },
    );
    add("C4 causes, proposed, Dedup", p, Bounds { causes: true, ..dedup });
    v
}
