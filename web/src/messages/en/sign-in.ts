export const signIn = {
  title: "Sign in",
  withToken: "User token",
  withPassword: "Password",
  token: "Token",
  tokenHelp: "A token of your own, pt_…; an administrator creates one under Access → Users, or with",
  user: "User name",
  password: "Password",
  submit: "Sign in",
  linkUsed: "This sign-in link does not work: it was used before, or it is too old.",
  linkBusy: "Signing you in…",
};
