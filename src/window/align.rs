//! Windows that are the same for all keys.

use crate::time::is_event_time;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use onceflow_types::{Error, Result, Timestamp};

/// `[start, end)` in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// Which windows a time is in.
#[derive(Clone, Debug)]
pub(crate) enum Align {
    /// One begins at `offset` and every `slide` before and behind it.
    Fixed { size: i64, slide: i64, offset: i64 },
    /// Days by the clocks of a place. What a clock on the wall does not show on a day begins when it next can.
    Daily { zone: TimeZone, begins: Time },
}

impl Align {
    pub(super) fn fixed(size: i64, slide: i64, offset: i64) -> Align {
        Align::Fixed { size, slide, offset }
    }

    pub(super) fn daily(zone: &str, offset: i64) -> Result<Align> {
        let invalid =
            |e: jiff::Error| Error::invalid(format!("no such time zone or time of day: zone={zone}")).with_source(e);
        let zone_found = TimeZone::get(zone).map_err(invalid)?;
        let (hours, rest) = (offset / 3_600_000, offset % 3_600_000);
        let part = |number: i64| i8::try_from(number).unwrap_or(i8::MAX);
        let nanos = i32::try_from(rest % 1_000).unwrap_or(0) * 1_000_000;
        let begins = Time::new(part(hours), part(rest / 60_000), part(rest / 1_000 % 60), nanos).map_err(invalid)?;
        Ok(Align::Daily { zone: zone_found, begins })
    }

    /// Appends the windows that hold `time`, the earliest first.
    ///
    /// # Errors
    /// `Record` for a time that can be none.
    pub(crate) fn spans(&self, time: Timestamp, to: &mut Vec<Span>) -> Result<()> {
        if !is_event_time(time) {
            return Err(out_of_range(time));
        }
        match self {
            Align::Fixed { size, slide, offset } => {
                let time = time.as_millis();
                // Floors negative times, too. All numbers are far from the ends of their range.
                let last = time - (time - offset).rem_euclid(*slide);
                let before = (last - time + size - 1).div_euclid(*slide);
                to.extend(
                    (0..=before).rev().map(|back| last - back * slide).map(|start| Span { start, end: start + size }),
                );
                Ok(())
            }
            Align::Daily { zone, begins } => {
                to.push(day(zone, *begins, time).map_err(|e| out_of_range(time).with_source(e))?);
                Ok(())
            }
        }
    }
}

#[cold]
pub(crate) fn out_of_range(time: Timestamp) -> Error {
    Error::record(format!("event time is out of range: time={time}"))
}

fn day(zone: &TimeZone, begins: Time, time: Timestamp) -> std::result::Result<Span, jiff::Error> {
    let begin = |date: Date| -> std::result::Result<i64, jiff::Error> {
        Ok(zone.to_timestamp(date.to_datetime(begins))?.as_millisecond())
    };
    let mut date = zone.to_datetime(jiff::Timestamp::from_millisecond(time.as_millis())?).date();
    // Before its beginning it is still the day before; behind the next one, which clocks that go back can show, the next.
    if begin(date)? > time.as_millis() {
        date = date.yesterday()?;
    } else if begin(date.tomorrow()?)? <= time.as_millis() {
        date = date.tomorrow()?;
    }
    Ok(Span { start: begin(date)?, end: begin(date.tomorrow()?)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans(align: &Align, time: i64) -> Vec<(i64, i64)> {
        let mut spans = vec![];
        align.spans(Timestamp::from_millis(time), &mut spans).unwrap();
        spans.into_iter().map(|span| (span.start, span.end)).collect()
    }

    /// Case 35.
    #[test]
    fn negative_times_floor() {
        let tumbling = Align::fixed(5_000, 5_000, 0);
        let windows: Vec<_> = [-1, -5_000, -5_001, 0].iter().flat_map(|time| spans(&tumbling, *time)).collect();
        assert_eq!(windows, [(-5_000, 0), (-5_000, 0), (-10_000, -5_000), (0, 5_000)]);
        let moved = Align::fixed(5_000, 5_000, 2_000);
        let windows: Vec<_> = [1_999, -8_001].iter().flat_map(|time| spans(&moved, *time)).collect();
        assert_eq!(windows, [(-3_000, 2_000), (-13_000, -8_000)]);
        for time in [Timestamp::MIN, Timestamp::MAX] {
            let error = tumbling.spans(time, &mut vec![]).unwrap_err();
            assert_eq!(error.kind(), onceflow_types::ErrorKind::Record);
        }
    }

    proptest! {
        #[test]
        fn hopping_windows_are_those_that_hold_the_time(
            time in -100_000i64..100_000, size in 1i64..500, part in 1i64..500, offset in 0i64..1_000,
        ) {
            let slide = part.min(size);
            let align = Align::fixed(size, slide, offset);
            let got = spans(&align, time);
            let starts = (time - 2_000..=time).filter(|start| (start - offset).rem_euclid(slide) == 0);
            let want: Vec<_> = starts.map(|start| (start, start + size)).filter(|(_, end)| time < *end).collect();
            prop_assert_eq!(got, want);
        }

        #[test]
        fn days_cover_all_time_once(time in -4_000_000_000_000i64..4_000_000_000_000, hours in 0i64..24, zone in 0usize..5) {
            let zone = ["Europe/Berlin", "America/Sao_Paulo", "Asia/Shanghai", "UTC", "Australia/Lord_Howe"][zone];
            let align = Align::daily(zone, hours * 3_600_000).unwrap();
            let day = spans(&align, time)[0];
            prop_assert!(day.0 <= time && time < day.1);
            prop_assert_eq!(spans(&align, day.1 - 1), vec![day]);
            prop_assert_eq!(spans(&align, day.0), vec![day]);
            prop_assert_eq!(spans(&align, day.1)[0].0, day.1, "the next one begins where this one ends");
        }
    }

    #[test]
    fn days_follow_the_clocks_of_the_place() {
        let berlin = Align::daily("Europe/Berlin", 0).unwrap();
        let hours = |time: i64| spans(&berlin, time).into_iter().map(|(start, end)| (end - start) / 3_600_000).next();
        // 2024-03-31 and 2024-10-27, noon UTC.
        assert_eq!(hours(1_711_886_400_000), Some(23));
        assert_eq!(hours(1_730_030_400_000), Some(25));
        assert_eq!(hours(1_718_452_800_000), Some(24));
        // Case 43: the day of Shanghai begins at 16:00 UTC.
        let shanghai = Align::daily("Asia/Shanghai", 0).unwrap();
        assert_eq!(spans(&shanghai, 1_704_124_799_999), [(1_704_038_400_000, 1_704_124_800_000)]);
        assert_eq!(spans(&shanghai, 1_704_124_800_000), [(1_704_124_800_000, 1_704_211_200_000)]);
    }
}
