//! One card: its payments in the raw input, its records in the reader view.

use crate::report::Report;
use std::collections::BTreeMap;

/// A message of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payment {
    pub(super) queue: u32,
    pub(super) id: u64,
    pub(super) amount: i64,
}

/// What the job keeps for each card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Figures {
    pub(super) count: u64,
    pub(super) sum: i64,
    pub(super) min: i64,
    pub(super) max: i64,
}

impl Figures {
    /// With one more payment; `None` before the first one.
    fn with(before: Option<Figures>, amount: i64) -> Figures {
        match before {
            None => Figures { count: 1, sum: amount, min: amount, max: amount },
            Some(Figures { count, sum, min, max }) => {
                Figures { count: count + 1, sum: sum + amount, min: min.min(amount), max: max.max(amount) }
            }
        }
    }
}

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Card {
    /// Queue by queue in the order of offsets. A payment that the producer sent again is there again.
    pub(super) payments: Vec<Payment>,
    outputs: Vec<(u64, Figures)>,
    queue: Option<u32>,
    queues_changed: u64,
}

impl Card {
    /// A record of the reader view, in order.
    pub(super) fn output(&mut self, queue: u32, id: u64, figures: Figures) {
        let changed = self.queue.replace(queue).is_some_and(|before| before != queue);
        self.queues_changed += u64::from(changed);
        self.outputs.push((id, figures));
    }

    pub(super) fn judge(&self, name: &str, report: &mut Report) {
        for _ in 0..self.queues_changed {
            report.fault(|f| &mut f.out_of_order, || format!("{name}: its records are in two queues"));
        }
        self.judge_set(name, report);
        self.judge_figures(name, report);
    }

    /// Each payment once, those of one input queue in their order. A payment that is in the input twice counts twice.
    fn judge_set(&self, name: &str, report: &mut Report) {
        let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (place, payment) in self.payments.iter().enumerate().rev() {
            places.entry(payment.id).or_default().push(place);
        }
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for (id, figures) in &self.outputs {
            match places.get_mut(id).map(Vec::pop) {
                None => report.fault(|f| &mut f.foreign, || format!("{name}: no such payment: id={id}")),
                Some(None) => report.fault(|f| &mut f.doubled, || format!("{name}: doubled: id={id} {figures:?}")),
                Some(Some(place)) => {
                    let queue = self.payments.get(place).map_or(0, |payment| payment.queue);
                    let before = last.insert(queue, place);
                    if before.is_some_and(|before| before > place) {
                        report
                            .fault(|f| &mut f.out_of_order, || format!("{name}: out of order: id={id} queue={queue}"));
                    }
                }
            }
        }
        for (id, left) in places {
            for _ in left {
                report.fault(|f| &mut f.lost, || format!("{name}: lost: id={id}"));
            }
        }
    }

    /// Each record follows from the one before, and the last one from all payments.
    fn judge_figures(&self, name: &str, report: &mut Report) {
        let amounts: BTreeMap<u64, i64> = self.payments.iter().map(|payment| (payment.id, payment.amount)).collect();
        let mut before = None;
        for (id, found) in &self.outputs {
            // One that is not in the input was counted already.
            if let Some(amount) = amounts.get(id) {
                let expected = Figures::with(before, *amount);
                if expected != *found {
                    let words = || format!("{name}: wrong figures: id={id} expected={expected:?} found={found:?}");
                    report.fault(|f| &mut f.wrong, words);
                }
            }
            before = Some(*found);
        }
        let all = self.payments.iter().fold(None, |sum, payment| Some(Figures::with(sum, payment.amount)));
        if all != before {
            report.fault(|f| &mut f.wrong, || format!("{name}: wrong in the end: expected={all:?} found={before:?}"));
        }
    }
}
