// Show the slice of a case that its slider selects. Arrow keys move a focused slider.
for (const slider of document.querySelectorAll(".slider")) {
  const input = slider.querySelector("input");
  const slices = [...slider.parentElement.children].filter((child) => child !== slider);
  const show = () => {
    slices.forEach((slice, index) => { slice.hidden = index !== input.valueAsNumber; });
    const number = slices[input.valueAsNumber].dataset.slice;
    slider.querySelector("output").value = number;
    input.setAttribute("aria-valuetext", `slice ${number}`);
  };
  input.addEventListener("input", show);
  slider.hidden = false;
  show();
}
