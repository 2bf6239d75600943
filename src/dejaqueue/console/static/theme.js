// The theme that was chosen, before anything is drawn; without a choice, the system's.
"use strict";
{
  const chosen = localStorage.getItem("dejaq-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
