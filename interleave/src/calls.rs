use crate::waiting::Waiting;
use shuttle::future::block_on;
use shuttle::thread;
use std::sync::Arc;

/// Callers of one connection, each of which waits for its own number, or goes away at once.
fn callers(waiting: &Arc<Waiting<i32>>, stay: bool) -> Vec<thread::JoinHandle<Option<i32>>> {
    let call = |opaque| {
        let waiting = waiting.clone();
        thread::spawn(move || {
            let mut place = waiting.begin(opaque)?;
            if stay { block_on(place.reply()) } else { None }
        })
    };
    (1..=2).map(call).collect()
}

/// Each caller gets its own reply or learns of the end, whoever begins, answers and ends first (a deadlock else), and nobody
/// begins to wait behind the end.
pub fn the_end_reaches_every_caller() {
    let waiting = Arc::new(Waiting::new());
    let calls = callers(&waiting, true);
    let broker = {
        let waiting = waiting.clone();
        thread::spawn(move || (1..=2).map(|opaque| waiting.deliver(opaque, opaque)).collect::<Vec<_>>())
    };
    let closer = {
        let waiting = waiting.clone();
        thread::spawn(move || waiting.end())
    };
    waiting.end();
    let delivered = broker.join().expect("the broker's thread");
    assert!(closer.join().is_ok() && !waiting.is_open());
    assert!(waiting.begin(3).is_none(), "nobody waits on a connection that has ended");
    for ((call, delivered), opaque) in calls.into_iter().zip(delivered).zip(1..) {
        let reply = call.join().expect("a caller's thread");
        assert_eq!(reply, delivered.then_some(opaque), "a reply that counts as delivered is its caller's");
    }
}

/// A caller that goes away takes its place along: its late reply finds nobody, and another's place is untouched.
pub fn a_caller_that_leaves_leaves_nothing() {
    let waiting = Arc::new(Waiting::new());
    let mut staying = waiting.begin(7).expect("open");
    let calls = callers(&waiting, false);
    let broker = {
        let waiting = waiting.clone();
        thread::spawn(move || waiting.deliver(1, 1) | waiting.deliver(7, 7))
    };
    for call in calls {
        assert_eq!(call.join().expect("a caller's thread"), None);
    }
    assert!(broker.join().expect("the broker's thread"));
    assert!(!waiting.deliver(1, 1) && !waiting.deliver(2, 2), "a late reply finds nobody");
    assert_eq!(block_on(staying.reply()), Some(7));
}
