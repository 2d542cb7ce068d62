use std::fmt::{self, Write};
use std::iter;

/// A line chart as an SVG for light and dark backgrounds.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) lines: Vec<Line>,
    pub(crate) across: Across,
    pub(crate) scale: Scale,
    /// Formats a value of the vertical axis.
    pub(crate) label: fn(f64) -> String,
}

/// The horizontal axis.
#[derive(Clone, Copy)]
pub(crate) struct Across {
    pub(crate) name: &'static str,
    /// Formats a value.
    pub(crate) label: fn(f64) -> String,
}

pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) color: &'static str,
    /// Values on both axes, from left to right.
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// Starts at zero.
    Linear,
    /// Powers of ten.
    Log,
}

impl Chart {
    pub(crate) fn to_svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut svg);
        svg
    }

    fn write(&self, svg: &mut String) -> fmt::Result {
        let Self { title, subtitle, .. } = self;
        let across = Axis::across(self.lines.iter().flat_map(|line| &line.points).map(|point| point.0));
        let up = Axis::up(self.lines.iter().flat_map(|line| &line.points).map(|point| point.1), self.scale);

        writeln!(svg, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">"#)?;
        writeln!(svg, "<title>{title}</title>\n<style>{STYLE}</style>")?;
        writeln!(svg, r#"<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>"#)?;
        writeln!(svg, r#"<text class="title" x="{LEFT}" y="26">{title}</text>"#)?;
        writeln!(svg, r#"<text x="{LEFT}" y="44">{subtitle}</text>"#)?;
        for &tick in &up.ticks {
            let (y, label) = (up.place(tick), (self.label)(tick));
            writeln!(svg, r#"<path class="grid" d="M{LEFT} {y:.1}H{RIGHT}"/>"#)?;
            writeln!(svg, r#"<text class="end" x="{}" y="{:.1}">{label}</text>"#, LEFT - 8.0, y + 4.0)?;
        }
        for &tick in &across.ticks {
            let (x, label) = (across.place(tick), (self.across.label)(tick));
            writeln!(svg, r#"<text class="middle" x="{x:.1}" y="{}">{label}</text>"#, BOTTOM + 20.0)?;
        }
        let middle = (LEFT + RIGHT) / 2.0;
        let name = self.across.name;
        writeln!(svg, r#"<text class="middle" x="{middle}" y="{}">{name}</text>"#, BOTTOM + 40.0)?;
        for Line { color, points, .. } in &self.lines {
            write!(svg, r#"<polyline stroke="{color}" points=""#)?;
            for &(place, value) in points {
                write!(svg, "{:.1},{:.1} ", across.place(place), up.place(value))?;
            }
            writeln!(svg, r#""/>"#)?;
            for &(place, value) in points {
                let (x, y) = (across.place(place), up.place(value));
                writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{color}"/>"#)?;
            }
        }
        for (name, color, y) in self.names(&up) {
            writeln!(svg, r#"<text x="{}" y="{:.1}" style="fill:{color}">{name}</text>"#, RIGHT + 8.0, y + 4.0)?;
        }
        writeln!(svg, "</svg>")
    }

    /// Returns the names of the lines at their right ends, moved apart to avoid overlaps.
    fn names(&self, up: &Axis) -> Vec<(&'static str, &'static str, f64)> {
        let ends = self.lines.iter().filter_map(|line| {
            let &(_, value) = line.points.last()?;
            Some((line.name, line.color, up.place(value)))
        });
        let mut names: Vec<_> = ends.collect();
        names.sort_by(|one, other| other.2.total_cmp(&one.2));
        let mut lowest = BOTTOM;
        for (_, _, y) in &mut names {
            *y = y.min(lowest);
            lowest = *y - NAME_HEIGHT;
        }
        let mut highest = TOP;
        for (_, _, y) in names.iter_mut().rev() {
            *y = y.max(highest);
            highest = *y + NAME_HEIGHT;
        }
        names
    }
}

/// Maps values to positions.
struct Axis {
    ticks: Vec<f64>,
    /// The values at both ends.
    values: (f64, f64),
    places: (f64, f64),
    scale: Scale,
}

impl Axis {
    /// Creates an axis with a tick at each value.
    fn across(values: impl Iterator<Item = f64>) -> Self {
        let mut ticks: Vec<_> = values.collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let ends = (ticks.first().copied().unwrap_or(1.0), ticks.last().copied().unwrap_or(1.0));
        Self { ticks, values: ends, places: (LEFT + 12.0, RIGHT - 4.0), scale: Scale::Log }
    }

    /// Creates an axis with round ticks around all values.
    fn up(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let (least, most) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(a, b), value| (a.min(value), b.max(value)));
        let ticks: Vec<_> = match scale {
            Scale::Linear => {
                let power = 10_f64.powf((most / f64::from(TICKS)).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
                let step = step.into_iter().find(|step| most <= step * f64::from(TICKS)).unwrap_or(most);
                (0..=TICKS).map(|tick| f64::from(tick) * step).take_while(|tick| *tick < most + step).collect()
            }
            Scale::Log => {
                let lowest = 10_f64.powf(least.log10().floor());
                iter::successors(Some(lowest), |tick| (*tick < most).then_some(tick * 10.0)).collect()
            }
        };
        let ends = (ticks.first().copied().unwrap_or(0.0), ticks.last().copied().unwrap_or(1.0));
        Self { ticks, values: ends, places: (BOTTOM, TOP), scale }
    }

    fn place(&self, value: f64) -> f64 {
        let measure = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.ln(),
        };
        let (start, end) = (measure(self.values.0), measure(self.values.1));
        let share = if start < end { (measure(value) - start) / (end - start) } else { 0.5 };
        self.places.0 + share * (self.places.1 - self.places.0)
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 600.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 340.0;
const NAME_HEIGHT: f64 = 16.0;

/// The maximum number of steps on a linear axis.
const TICKS: u32 = 6;

const STYLE: &str = "\
text{font-family:system-ui,sans-serif;font-size:13px;fill:#424a53}.title{font-size:16px;font-weight:600}\
.end{text-anchor:end}.middle{text-anchor:middle}.paper{fill:#fff}.grid{stroke:#d8dee4}\
polyline{fill:none;stroke-width:2.5;stroke-linejoin:round}\
@media(prefers-color-scheme:dark){text{fill:#c9d1d9}.paper{fill:#0d1117}.grid{stroke:#30363d}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_start_at_zero_and_cover_the_maximum() {
        assert_eq!(Axis::up([3.0, 187.0].into_iter(), Scale::Linear).ticks, [0.0, 50.0, 100.0, 150.0, 200.0]);
        assert_eq!(Axis::up([0.6].into_iter(), Scale::Linear).ticks.len(), 7);
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten() {
        assert_eq!(Axis::up([30.0, 1700.0].into_iter(), Scale::Log).ticks, [10.0, 100.0, 1000.0, 10000.0]);
    }

    #[test]
    fn labels_keep_their_order_and_minimum_distance() {
        let line = |name, value| Line { name, color: "", points: vec![(1.0, value)] };
        let lines = vec![line("low", 1.0), line("high", 100.0), line("lower", 0.5)];
        let chart = Chart {
            title: String::new(),
            subtitle: String::new(),
            lines,
            across: Across { name: "", label: |_| String::new() },
            scale: Scale::Linear,
            label: |_| String::new(),
        };
        let names = chart.names(&Axis::up([100.0].into_iter(), Scale::Linear));
        assert_eq!(names.iter().map(|name| name.0).collect::<Vec<_>>(), ["lower", "low", "high"]);
        assert!(names.windows(2).all(|pair| pair[0].2 - pair[1].2 >= NAME_HEIGHT));
    }
}
